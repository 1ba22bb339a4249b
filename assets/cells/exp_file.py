def check_label(path, run_label):
    """测量之前先检查标签：已有结果的标签不许重用；'default' 例外，会被替换。"""
    if Path(path).exists() and run_label != "default":
        raise FileExistsError(f"{path} 已存在。请换一个 RUN_LABEL，或自己先移走旧文件；只有 'default' 会被替换。")


def write_json_atomic(path, data):
    """先写同目录下的临时文件，再改名：中途断电也不会留下半个文件。遇到 NaN 抛 ValueError，旧文件不动。"""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, indent=1)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def save_report(path, report):
    """保存结果并说明存到哪里。"""
    check_label(path, report["run_label"])
    replaced = Path(path).exists()
    write_json_atomic(path, report)
    print(f"{'已替换旧结果' if replaced else '已保存'}：{path}")
