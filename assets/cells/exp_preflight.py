def show_preflight(path="benchmarks/results/inf_cuda_mechanism_preflight_default.json"):
    """有第 1 章的预检结果就读它；没有就做一次简短的检查。只打印，不阻止实验。"""
    if Path(path).exists():
        report = json.loads(Path(path).read_text(encoding="utf-8"))
        print(f"预检：tier={report['tier']}，compile_check={report['compile_check']['status']}")
        return
    cxx = any(shutil.which(name) for name in (os.environ.get("CXX", "g++"), "clang++", "cl"))
    print(f"没有预检结果（{path}）。简短检查：cuda={torch.cuda.is_available()}，cxx={cxx}，torch {torch.__version__}")
