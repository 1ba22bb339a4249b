# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown] slug="title"
# # INF-CUDA-MECHANISM. Preflight: What Can This Machine Prove? | 环境预检：这台机器能证明什么
#
# [![在 Colab 打开本章](https://colab.research.google.com/assets/colab-badge.svg)]({{colab}}) [![在 ModelScope 打开本章](https://img.shields.io/badge/Open%20in-ModelScope-624aff)]({{modelscope}})
#
# **难度**：Easy ｜ **环境**：CPU-first + 可选单卡 GPU ｜ **标签**：快速开始、环境预检、百分位数、结果文件 ｜ **预计用时**：60 分钟（阅读 20，三个 TODO 40；第五步的实验另计）｜ 版本 {{version}}
#
# 拿到一台机器，先别急着测速度。先问它能证明什么：能编译吗？有 GPU 吗？两次测量差 3%，是优化，还是噪声？本章把这些问题变成三个可以检查的函数。
#
# **学完本章，你能够**
#
# 1. 判断一台机器属于哪一档（tier），并说出这一档允许做什么、不允许下什么结论；
# 2. 用整数算百分位数（percentile），并解释浮点数为什么会错一位；
# 3. 读懂全系列共用的结果文件，并准确指出一份坏文件坏在哪个字段。
#
# **先修**：Python 的函数、列表和字典。不需要 GPU，也不需要学过 CUDA。
#
# **下一章**：{{chapter:02_operator_fusion|第 2 章 算子融合}}

# %% [markdown] slug="quickstart"
# ## 快速开始（Quickstart）
#
# 本系列共八章，每章是一个独立的 notebook，只依赖 `torch` 和 `matplotlib`。三种打开方式任选一种：
#
# | 环境 | 怎样打开 | 要知道的事 |
# |---|---|---|
# | 本地 JupyterLab | 装好依赖，直接打开本文件 | 结果写在 notebook 的工作目录里，一直都在 |
# | Google Colab | 点上面的 Colab 徽章 | 默认没有 GPU，可在“更改运行时类型”里选；虚拟机回收后文件就没了，重要的结果先下载 |
# | 魔搭 ModelScope | 点上面的 ModelScope 徽章，登录后选实例 | 可选 CPU 或 GPU 实例；结果同样要先下载 |
#
# 每章的走法都一样：
#
# 1. 从上到下读，从上到下运行；
# 2. 每章恰好三个 TODO。每填完一个，就运行它下面的测试；没填的 TODO 会报出自己的编号，这是提醒，不是错误；
# 3. 测试不过时先看报错：它会说期望什么、得到什么、可能的原因、该重读哪一节。几格同时不过时，先改最上面的一格：下面几格往往是同一个错；
# 4. 还卡住，就展开 TODO 里折叠的提示，一条一条看；
# 5. 最后一步是可选实验。不运行它，不影响得分。
#
# 打分只看三个 TODO：从不计时，也不需要 GPU。

# %% [markdown] slug="step-1"
# ## 第一步 为什么先做预检（Why preflight）
#
# 性能结论很容易说过头。先看三件真事：
#
# | 看到的现象 | 容易下的结论 | 实际情况 |
# |---|---|---|
# | `torch.compile(f)` 没有报错 | “这台机器能编译” | 这一句只做包装，编译发生在第一次调用时。没有 C++ 编译器，CPU 上的 Inductor 到那时才报 `InvalidCxxCompiler`<sup>[1]</sup> |
# | 同一个函数和自己比，“加速”大于 1.0 | “优化有效” | 这叫 A/A 测试。本课程实测：按“任一形状大于 1.0 就算快”的规则，60 次里有 53 到 59 次“变快”，全是噪声<sup>[4]</sup> |
# | CPU 上 compiled 比 eager 快 | “GPU 上也会快” | 两边的 kernel、启动开销和内存都不同，必须在 GPU 上重测 |
#
# 所以动手之前先问：**这台机器能证明什么？** 这就是预检，代号 `INF-CUDA-MECHANISM`。
# 它也是全系列的 `PROFILE_ID`：各章的结果文件都写着它，表示“用同一套方法测得”。
#
# ### 1.1 三个档位（tiers）
#
# ![三级台阶：cpu_eager 只需 torch；cpu_compile 还需要 torch.compile 和 C++ 编译器；gpu 需要 CUDA 和 torch.compile。每上一级，允许的实验多一种]({{raw:assets/figures/01_tiers.png}})
#
# *图 1　三个档位：每级台阶上写着要求，旁边是新增的实验。*
#
# | 档位 | 需要 | 允许做 | 不允许说 |
# |---|---|---|---|
# | `cpu_eager` | 能 `import torch` | 全部 TODO 和测试；读已有的结果；画图 | 关于编译或 GPU 的任何性能结论 |
# | `cpu_compile` | `torch.compile` 可用，并且有 C++ 编译器 | 再加 `real_cpu`：在 CPU 上比较 eager 与 compiled | “GPU 上也会快” |
# | `gpu` | CUDA 可用，并且 `torch.compile` 可用 | 再加 `real_gpu`：在单卡上比较 | “整个模型端到端变快了”：我们测的只是局部 |
#
# 档位是**必要条件**，不是证明。到了某一档，只表示实验值得一试；跑没跑成、结果是什么，要看实验自己的记录。

# %% 探测函数：只看，不下结论 slug="probe-function"
import os
import shutil
import sys

import torch


def probe_environment():
    """探测这台机器。返回 TODO 1 的输入：五个键，值都是普通的 Python 值。"""
    cuda = torch.cuda.is_available()
    try:
        from torch import _dynamo  # 私有模块，不同版本可能不同：放在 try 里

        can_compile = bool(_dynamo.is_dynamo_supported())
    except Exception:
        can_compile = False
    default_cxx = {"darwin": "clang++", "win32": "cl"}.get(sys.platform, "g++")
    cxx = shutil.which(os.environ.get("CXX", default_cxx)) is not None
    if cuda:
        free_bytes = torch.cuda.mem_get_info()[0]  # 显存
    elif hasattr(os, "sysconf") and "SC_AVPHYS_PAGES" in os.sysconf_names:
        free_bytes = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")  # 主机内存
    else:
        free_bytes = None
    found = {"cuda": cuda, "compile": can_compile, "cxx": cxx}
    return found | {"torch_version": torch.__version__, "free_bytes": free_bytes}


# %% 看看你的机器 slug="probe-run" tags=["experiment", "nbval-ignore-output"]
for key, value in probe_environment().items():
    print(f"{key:14} {value}")

# %% [markdown] slug="step-2"
# ## 第二步 从探测到档位（From probe to tier）
#
# ### 2.1 档位的规则
#
# 把三个布尔量记作 $g$（`cuda`）、$c$（`compile`）、$x$（`cxx`）：
#
# $$
# \text{tier}=\begin{cases}\texttt{gpu} & g\wedge c\\ \texttt{cpu\_compile} & \text{否则，若 } c\wedge x\\ \texttt{cpu\_eager} & \text{其余}\end{cases}
# $$
#
# 两处要看清：`gpu` 档**不要求** C++ 编译器；有 CUDA 但 `torch.compile` 不可用，**不是** `gpu` 档。
#
# ### 2.2 被什么挡住（blocked）
#
# 光说“你在第几档”没有用，还要说**差什么才能再上一档**。`blocked` 列出挡住**下一档**的所有原因，不列更高的档。
#
# | 现在的档位 | 下一档 | 下一档要求 | 可能的原因 |
# |---|---|---|---|
# | `cpu_eager` | `cpu_compile` | `compile` 和 `cxx` | `no_compile`, `no_cxx` |
# | `cpu_compile` | `gpu` | `cuda` 和 `compile` | `no_cuda`（此时 `compile` 已经满足） |
# | `gpu` | 没有 | — | 空列表 |
#
# 原因按固定顺序排列：`no_cuda`, `no_compile`, `no_cxx`。例如：
#
# | `cuda` | `compile` | `cxx` | `tier` | `blocked` |
# |---|---|---|---|---|
# | 是 | 是 | 否 | `gpu` | `[]` |
# | 否 | 是 | 是 | `cpu_compile` | `['no_cuda']` |
# | 否 | 是 | 否 | `cpu_eager` | `['no_cxx']` |
# | 是 | 否 | 否 | `cpu_eager` | `['no_compile', 'no_cxx']` |
#
# ### 2.3 输入的约定
#
# - 缺少的键当作 `False`：没有证据，就当没有这个能力；
# - `torch_version` 和 `free_bytes` 只作记录，不影响档位；
# - 不修改传入的 `probe`。

# %% [markdown] slug="todo1-text"
# ### TODO 1 · `classify_environment`
#
# 用时 10 分钟 ｜ 难度 ●○○ ｜ 要写的：函数体。把 `raise NotImplementedError(...)` 那一行换成你的代码。
#
# | 输入 | 输出 |
# |---|---|
# | `probe`：第一步的五个键，可能缺键 | `{'tier': 'gpu' \| 'cpu_compile' \| 'cpu_eager', 'blocked': [原因, …]}` |
#
# <details><summary>提示 1：从哪里开始</summary>
#
# 先用 `probe.get("cuda", False)` 取出三个布尔量，再按 2.1 的顺序判断。
# </details>
#
# <details><summary>提示 2：blocked 怎样列全</summary>
#
# 先定档位，再看“下一档要求什么”，逐项检查。不要用 `elif`：它只会留下第一个原因。
# </details>

# %% 环境分档 slug="todo1" todo=1 stub="请先完成 TODO 1：实现 classify_environment" nbgrader={"grade": false, "grade_id": "todo1", "locked": false, "schema_version": 3, "solution": true, "task": false}
def classify_environment(probe):
    """把探测结果分档，并列出挡住下一档的全部原因。规则见 2.1 至 2.3。"""
    ### BEGIN SOLUTION
    cuda, can_compile, cxx = (bool(probe.get(key, False)) for key in ("cuda", "compile", "cxx"))
    if cuda and can_compile:
        return {"tier": "gpu", "blocked": []}
    if can_compile and cxx:
        return {"tier": "cpu_compile", "blocked": ["no_cuda"]}
    blocked = []
    if not can_compile:
        blocked.append("no_compile")
    if not cxx:
        blocked.append("no_cxx")
    return {"tier": "cpu_eager", "blocked": blocked}
    ### END SOLUTION


# %% gpu 档：CUDA 与 torch.compile 缺一不可 todo=1 step="2.1 档位的规则" nbgrader={"grade": true, "grade_id": "todo1_gpu_tier", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
def test_gpu_tier():
    cases = [
        ((True, True, True), "gpu", "两项要求都满足"),
        ((True, True, False), "gpu", "gpu 档不要求 C++ 编译器，不要检查 cxx"),
        ((True, False, True), "cpu_eager", "有 CUDA 但不能编译，不是 gpu 档；不能编译，也到不了 cpu_compile"),
    ]
    for (cuda, can_compile, cxx), want, cause in cases:
        probe = {"cuda": cuda, "compile": can_compile, "cxx": cxx, "torch_version": "2.13.0", "free_bytes": 1 << 30}
        got = classify_environment(probe)
        assert isinstance(got, dict) and "tier" in got, (
            f"期望得到含 'tier' 的字典，得到 {got!r}。重读 TODO 1 的输出一栏。"
        )
        assert got["tier"] == want, (
            f"cuda={cuda}, compile={can_compile}, cxx={cxx}：期望档位 {want!r}，得到 {got['tier']!r}。"
            f"可能的原因：{cause}。重读 2.1。"
        )


test_gpu_tier()


# %% 两个 CPU 档：compile 与 C++ 编译器 todo=1 step="2.1 档位的规则" nbgrader={"grade": true, "grade_id": "todo1_cpu_tiers", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
def test_cpu_tiers():
    cases = [
        ((True, True), "cpu_compile", "compile 和 cxx 都有，没有 CUDA，就是 cpu_compile"),
        ((True, False), "cpu_eager", "没有 C++ 编译器，CPU 上的 Inductor 编译不了"),
        ((False, True), "cpu_eager", "有 C++ 编译器，但 torch.compile 不可用"),
        ((False, False), "cpu_eager", "两项都没有"),
    ]
    for (can_compile, cxx), want, cause in cases:
        probe = {"cuda": False, "compile": can_compile, "cxx": cxx, "torch_version": "2.13.0", "free_bytes": 1 << 30}
        got = classify_environment(probe)["tier"]
        assert got == want, (
            f"cuda=False, compile={can_compile}, cxx={cxx}：期望档位 {want!r}，得到 {got!r}。"
            f"可能的原因：{cause}。重读 2.1。"
        )


test_cpu_tiers()


# %% blocked：挡住下一档的全部原因，按固定顺序 todo=1 step="2.2 被什么挡住" nbgrader={"grade": true, "grade_id": "todo1_blocked", "locked": true, "points": 8, "schema_version": 3, "solution": false, "task": false}
def test_blocked():
    cases = [
        ((True, True, True), [], "gpu 已经是最高档，没有下一档"),
        ((True, True, False), [], "gpu 档不需要 C++ 编译器，no_cxx 没有挡住任何档"),
        ((False, True, True), ["no_cuda"], "下一档是 gpu，只差 CUDA"),
        ((False, True, False), ["no_cxx"], "下一档是 cpu_compile；no_cuda 挡的是更高的 gpu 档，不列"),
        ((False, False, False), ["no_compile", "no_cxx"], "要列出全部原因，顺序固定；no_cuda 挡的是更高的档，不列"),
        ((True, False, False), ["no_compile", "no_cxx"], "下一档是 cpu_compile，它的两项要求都没满足"),
        ((True, False, True), ["no_compile"], "下一档只差 torch.compile"),
    ]
    for (cuda, can_compile, cxx), want, cause in cases:
        got = classify_environment({"cuda": cuda, "compile": can_compile, "cxx": cxx})["blocked"]
        assert isinstance(got, list), (
            f"期望 blocked 是列表，得到 {type(got).__name__}：{got!r}。重读 TODO 1 的输出一栏。"
        )
        assert got == want, (
            f"cuda={cuda}, compile={can_compile}, cxx={cxx}：期望 blocked = {want}，得到 {got}。"
            f"可能的原因：{cause}。重读 2.2。"
        )


test_blocked()


# %% 缺键、无关的键、不改输入 todo=1 step="2.3 输入的约定" nbgrader={"grade": true, "grade_id": "todo1_input", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
def test_probe_input():
    nothing = {"tier": "cpu_eager", "blocked": ["no_compile", "no_cxx"]}
    try:
        got = classify_environment({})
    except KeyError as error:
        raise AssertionError(
            f"期望空的 probe 得到 {nothing}，却出现 KeyError {error}。缺少的键当作 False。重读 2.3。"
        ) from None
    assert got == nothing, f"空的 probe：期望 {nothing}，得到 {got}。可能的原因：把缺少的键当成了 True。重读 2.3。"
    probe = {"compile": True, "cxx": True, "torch_version": "2.13.0+cu130", "free_bytes": 0}
    before = dict(probe)
    got, want = classify_environment(probe), {"tier": "cpu_compile", "blocked": ["no_cuda"]}
    assert got == want, f"probe = {before}：期望 {want}，得到 {got}。版本号和空闲字节数只作记录，不影响档位。重读 2.3。"
    assert probe == before, (
        f"传入的 probe 被改成了 {probe}，期望保持 {before}。用 get 读取，不要 pop 或赋值。重读 2.3。"
    )


test_probe_input()

# %% 全部组合 todo=1 step="2.1 至 2.3" nbgrader={"grade": true, "grade_id": "todo1_all", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
# 隐藏测试：评分时检查“全部组合”
### BEGIN HIDDEN TESTS
def hidden_test_all_combinations():
    wanted = {
        (True, True, True): ("gpu", []),
        (True, True, False): ("gpu", []),
        (True, False, True): ("cpu_eager", ["no_compile"]),
        (True, False, False): ("cpu_eager", ["no_compile", "no_cxx"]),
        (False, True, True): ("cpu_compile", ["no_cuda"]),
        (False, True, False): ("cpu_eager", ["no_cxx"]),
        (False, False, True): ("cpu_eager", ["no_compile"]),
        (False, False, False): ("cpu_eager", ["no_compile", "no_cxx"]),
    }
    for (cuda, can_compile, cxx), (tier, blocked) in wanted.items():
        for version, free_bytes in (("2.6.0", None), ("2.14.0+cpu", 0), ("2.13.0+cu130", 140 << 30)):
            probe = {"free_bytes": free_bytes, "torch_version": version}
            probe.update(cxx=cxx, compile=can_compile, cuda=cuda)
            got = classify_environment(probe)
            want = {"tier": tier, "blocked": blocked}
            assert got == want, f"probe={probe}：期望 {want}，得到 {got}。重读 2.1 至 2.3。"
    for missing in ("cuda", "compile", "cxx"):
        probe = {key: True for key in ("cuda", "compile", "cxx") if key != missing}
        explicit = {**probe, missing: False}
        got, want = classify_environment(probe), classify_environment(explicit)
        assert got == want, f"缺 {missing} 与 {missing}=False 应当一样：{got} 对 {want}。重读 2.3。"


hidden_test_all_combinations()
### END HIDDEN TESTS

# %% [markdown] slug="todo1-why" todo=1 tags=["instructor-only"]
# **讲解（TODO 1）** 先定档位，再看下一档缺什么。三个常见错误：
#
# 1. 把所有缺的能力都列进 `blocked`。读者要的是“下一步做什么”；在 `cpu_eager` 的机器上先装编译器，CUDA 是再下一步的事。
# 2. 用 `elif` 列原因，只剩第一个。修好一个再报下一个，用户要来回跑很多次。
# 3. 只看 `cuda` 就判 `gpu`。`real_gpu` 实验比较的是 eager 与 compiled，不能编译就没有对照。

# %% [markdown] slug="step-3"
# ## 第三步 百分位数（Percentile, nearest rank）
#
# ### 3.1 直觉与定义
#
# 平均延迟会藏起慢的请求。推理服务更关心 P95：**95% 的请求不慢于它**。
#
# 最近秩法（nearest rank）<sup>[2]</sup> 把 $n$ 个样本从小到大排好，取第 $r$ 个（从 1 数起）：
#
# $$ r=\left\lceil \frac{\text{num}\cdot n}{\text{den}} \right\rceil ,\qquad 0<\frac{\text{num}}{\text{den}}\le 1 $$
#
# ![20 个样本排成一行，第 19 个涂色：95/100 乘 20 等于 19，所以 P95 是第 19 个样本]({{raw:assets/figures/01_nearest_rank.png}})
#
# *图 2　20 个样本的 P95 是第 19 个。它是真实出现过的样本，不是插值。*
#
# | $n$ | num/den | num·n/den | 秩 $r$ | 含义 |
# |---|---|---|---|---|
# | 20 | 95/100 | 19 | 19 | 恰好整除，不再加一 |
# | 30 | 95/100 | 28.5 | 29 | 向上取整 |
# | 4 | 1/2 | 2 | 2 | 偶数个样本的 P50 取靠下的一个 |
# | 任意 | 1/1 | $n$ | $n$ | 最大值 |
#
# ### 3.2 为什么用整数算
#
# 公式里只有一次取整，偏偏浮点数就错在这里。`55/100` 存不准，乘 100 以后比 55 大一点点，向上取整就成了 56：

# %% 浮点数错一位 slug="float-trap"
import math

print("0.55 * 100       =", 0.55 * 100)
print("math.ceil(上式)  =", math.ceil(0.55 * 100), "  期望的秩是 55")
print("55 * 100 % 100   =", 55 * 100 % 100, "  整数里恰好整除，不该进位")

# %% [markdown] slug="step-3-rules"
# 所以 `num` 和 `den` 分开传，全程用整数；它们可以任意大，也不能出错。
#
# ### 3.3 不接受的输入
#
# 下面三种情况抛 `ValueError`，不猜：
#
# | 输入 | 为什么 |
# |---|---|
# | 没有样本 | 没有第 $r$ 个 |
# | 样本里有 NaN（在任何位置） | NaN 和谁比都不成立，排序结果没有意义 |
# | `num/den` 不在 $(0,1]$ 内，或 `den` 为 0 | 秩会落在 $1..n$ 之外 |
#
# 输入不一定有序，可以有重复值；重复值各算一个样本。正负无穷大能排序，不算坏输入。函数不修改传入的列表。
#
# ### 3.4 要多少样本才够
#
# $n$ 个独立样本全都落在 P95 以下的概率是 $0.95^n$。要让“最大的样本不小于真正的 P95”有 95% 的把握，须 $0.95^n\le 0.05$，即 $n\ge 59$：

# %% 59 个样本 slug="sample-size"
for n in (30, 58, 59, 120):
    print(f"n = {n:3d}   0.95**n = {0.95**n:.4f}   {'够' if 0.95**n <= 0.05 else '不够'}")

# %% [markdown] slug="todo2-text"
# ### TODO 2 · `nearest_rank`
#
# 用时 10 分钟 ｜ 难度 ●○○ ｜ 要写的：函数体。把 `raise NotImplementedError(...)` 那一行换成你的代码。
#
# | 输入 | 输出 |
# |---|---|
# | `values`：数的列表；`num`, `den`：整数 | `values` 里的一个元素 |
#
# <details><summary>提示 1：整数的向上取整</summary>
#
# Python 的 `//` 是向下取整。$\lceil a/b\rceil=-\lfloor -a/b\rfloor$，也等于 $\lfloor (a+b-1)/b\rfloor$（$a,b$ 为正整数）。
# </details>
#
# <details><summary>提示 2：从 1 数起</summary>
#
# 秩从 1 开始，列表下标从 0 开始，差 1。
# </details>
#
# <details><summary>提示 3：怎样认出 NaN</summary>
#
# NaN 不等于它自己：`v != v` 为真，也可以用 `math.isnan(v)`。
# </details>

# %% 最近秩百分位数 slug="todo2" todo=2 stub="请先完成 TODO 2：实现 nearest_rank" nbgrader={"grade": false, "grade_id": "todo2", "locked": false, "schema_version": 3, "solution": true, "task": false}
def nearest_rank(values, num, den):
    """values 的 num/den 百分位数（最近秩法）。坏输入抛 ValueError，见 3.3。"""
    ### BEGIN SOLUTION
    if not values:
        raise ValueError("没有样本")
    if any(value != value for value in values):
        raise ValueError("样本里有 NaN")
    if den <= 0 or not 0 < num <= den:
        raise ValueError(f"num/den = {num}/{den} 不在 (0, 1] 内")
    rank = -(-num * len(values) // den)  # ceil(num·n/den)，只用整数
    return sorted(values)[rank - 1]
    ### END SOLUTION


# %% 秩的定义：先排序，向上取整，从 1 数起 todo=2 step="3.1 直觉与定义" nbgrader={"grade": true, "grade_id": "todo2_rank", "locked": true, "points": 8, "schema_version": 3, "solution": false, "task": false}
def test_rank():
    cases = [
        ([40, 10, 30, 20], 1, 2, 20, "秩是 ceil(4/2)=2；要先排序，且不插值"),
        ([5, 1, 4, 2, 3], 1, 2, 3, "秩是 ceil(2.5)=3：向上取整"),
        ([-1, -10, 3, 20], 1, 4, -10, "按数值从小到大排，秩是 1"),
        ([7], 1, 100, 7, "只有一个样本，秩是 ceil(0.01)=1"),
        ([3, 1, 2], 1, 1, 3, "num/den=1 是最大值，秩是 n"),
        ([5, 5, 5, 9], 3, 4, 5, "重复值各算一个样本，不要去重"),
        (list(range(20, 0, -1)), 95, 100, 19, "恰好整除时不再加一"),
    ]
    for values, num, den, want, cause in cases:
        got = nearest_rank(list(values), num, den)
        assert got in values, (
            f"nearest_rank({values}, {num}, {den})：期望 {want}，得到 {got!r}，它不是样本之一。"
            "可能的原因：插值了、取了下标而不是值，或忘了 return。重读 3.1。"
        )
        assert got == want, (
            f"nearest_rank({values}, {num}, {den})：期望 {want}，得到 {got}。可能的原因：{cause}。重读 3.1。"
        )


test_rank()


# %% 全程用整数 todo=2 step="3.2 为什么用整数算" nbgrader={"grade": true, "grade_id": "todo2_integer", "locked": true, "points": 8, "schema_version": 3, "solution": false, "task": false}
def test_integer_rank():
    one_to_hundred = list(range(1, 101))
    for num in (7, 14, 28, 55, 56, 57):
        got = nearest_rank(one_to_hundred, num, 100)
        assert got == num, (
            f"1..100 的 {num}/100：期望 {num}，得到 {got}。"
            f"可能的原因：先算了浮点数 {num}/100，乘 100 得 {num / 100 * 100!r}，再取整就错一位；若差得更多，先改上一格。重读 3.2。"
        )
    num, den = 10**17 + 1, 2 * 10**17  # 比 1/2 大一点点：秩是 2
    got = nearest_rank([10, 20], num, den)
    assert got == 20, (
        f"nearest_rank([10, 20], 10**17 + 1, 2 * 10**17)：期望 20，得到 {got}。"
        "可能的原因：num * n / den 是浮点除法，大整数会丢掉末位。用 // 代替 /。重读 3.2。"
    )


test_integer_rank()


# %% 坏输入抛 ValueError todo=2 step="3.3 不接受的输入" nbgrader={"grade": true, "grade_id": "todo2_errors", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
def test_bad_values():
    nan = float("nan")
    cases = [
        ([], 1, 2, "没有样本"),
        ([nan, 1.0], 1, 2, "NaN 在开头"),
        ([1.0, 2.0, nan], 1, 2, "NaN 在末尾"),
        ([1, 2], 0, 100, "比例等于 0，秩会成为 0"),
        ([1, 2], 101, 100, "比例大于 1，秩会超过 n"),
        ([1, 2], -1, 2, "比例是负数"),
        ([1, 2], 1, 0, "den 为 0：抛 ValueError，不是 ZeroDivisionError"),
    ]
    for values, num, den, cause in cases:
        try:
            got = nearest_rank(values, num, den)
        except ValueError:
            continue
        except (ArithmeticError, LookupError, TypeError) as error:
            got = f"{type(error).__name__}: {error}"
        raise AssertionError(
            f"nearest_rank({values}, {num}, {den})：期望 ValueError，得到 {got}。原因：{cause}。重读 3.3。"
        )


test_bad_values()


# %% 不修改传入的列表 todo=2 step="3.3 不接受的输入" nbgrader={"grade": true, "grade_id": "todo2_pure", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
def test_values_unchanged():
    values = [3, 1, 2]
    nearest_rank(values, 1, 2)
    assert values == [3, 1, 2], (
        f"传入的列表应当保持 [3, 1, 2]，却成了 {values}。"
        "可能的原因：values.sort() 就地排序；用 sorted(values)。重读 3.3。"
    )


test_values_unchanged()

# %% 与定义逐一比较 todo=2 step="3.1 至 3.3" nbgrader={"grade": true, "grade_id": "todo2_definition", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
# 隐藏测试：评分时检查“与定义逐一比较”
### BEGIN HIDDEN TESTS
def hidden_test_definition():
    import math
    from fractions import Fraction

    for n in (1, 2, 3, 7, 30, 59, 100, 120):
        values = [((i * 37) % n if n % 37 else i) - n // 2 for i in range(n)]
        ratios = ((1, 1000), (1, 3), (1, 2), (2, 3), (9, 10), (55, 100), (95, 100), (99, 100), (999, 1000), (1, 1))
        for num, den in ratios:
            rank = math.ceil(Fraction(num * n, den))
            want = sorted(values)[rank - 1]
            got = nearest_rank(list(values), num, den)
            assert got == want, f"n={n}, {num}/{den}：期望 {want}，得到 {got}。重读 3.1。"
    inf = float("inf")
    assert nearest_rank([inf, 1.0, 2.0], 2, 3) == 2.0, "无穷大可以排序，不是坏输入。重读 3.3。"
    assert nearest_rank([0.5, 0.5, 0.25, 0.75], 3, 4) == 0.5, "重复值各算一个样本。重读 3.3。"


hidden_test_definition()
### END HIDDEN TESTS

# %% [markdown] slug="todo2-why" todo=2 tags=["instructor-only"]
# **讲解（TODO 2）** `-(-a // b)` 是整数的向上取整。`math.ceil(num / den * n)` 在 55/100、n=100 时得 56；`math.ceil(num * n / den)` 平时对，但大整数除法会舍入。
# 常见错误还有：`int(p * n)` 当下标（恰好整除时多一位）、先去重、`values.sort()` 改了调用者的数据、只检查 `values[0]` 是不是 NaN。

# %% [markdown] slug="step-4"
# ## 第四步 结果文件（The result file）
#
# ### 4.1 一份文件，八章共用
#
# 各章的实验都写 JSON，格式叫 `inference-mechanism-gpu/v2`。读者、画图和报告都只读这份文件，不重新测量。
#
# | 部分 | 字段 | 回答的问题 |
# |---|---|---|
# | 身份 | `schema_version`, `semantic_id`, `profile_id`, `run_label` | 这是哪一章、哪一次的结果 |
# | `workload` | `token_counts`, `hidden_size`, `dtype`, `warmup`, `repeats` | 测了什么 |
# | `hardware` | `device`, `torch_version`, `cuda` | 在哪里测的；CPU 上 `cuda` 为空 |
# | `candidate_matrix` | 每个 token 数一行 | 每一行正确吗，各花了多久 |
# | `summary` | `correctness_passed`, `captured_without_breaks`, `faster_cases`, `total_cases` | 合起来怎样 |
# | 结论 | `failure`, `evidence_level`, `decision` | 失败了几行，证据到什么程度，怎么决定 |
#
# 全系列的结果文件与全部字段，见[结果文件一览]({{blob:assets/experiments.md}})。
#
# ### 4.2 用一张表描述格式
#
# 下面的 `REPORT_SPEC` 把格式写成数据。它只有四种写法：
#
# | 写法 | 意思 | 例子 |
# |---|---|---|
# | 字符串 | 值的 JSON 类型 | `"number"` |
# | 字典 | 对象；列出的键都必须有 | `{"device": "string"}` |
# | 一个元素的列表 | 数组；每个元素都符合里面的写法 | `["integer"]` |
# | `(None, 写法)` | 可以是空值，否则要符合后面的写法 | `(None, "string")` |

# %% 结果文件的格式 slug="report-spec" nbgrader={"grade": false, "grade_id": "report_spec", "locked": true, "schema_version": 3, "solution": false, "task": false}
JSON_TYPES = {"string": str, "integer": int, "number": (int, float), "boolean": bool}

PATH_SPEC = {"median_ms": "number", "p95_ms": "number", "peak_allocated_bytes": (None, "integer")}
ROW_SPEC = {
    "token_count": "integer", "output_close": "boolean", "graph_count": "integer", "graph_break_count": "integer",
    "gpu_operator_keys": ["string"], "eager": PATH_SPEC, "compiled": PATH_SPEC, "speedup": "number",
}
REPORT_SPEC = {
    "schema_version": "string", "semantic_id": "string", "profile_id": "string", "run_label": "string",
    "workload": {
        "token_counts": ["integer"], "hidden_size": "integer", "dtype": "string",
        "warmup": "integer", "repeats": "integer",
    },
    "hardware": {"device": "string", "torch_version": "string", "cuda": (None, "string")},
    "candidate_matrix": [ROW_SPEC],
    "summary": {
        "correctness_passed": "boolean", "captured_without_breaks": "boolean",
        "faster_cases": "integer", "total_cases": "integer",
    },
    "failure": (None, [{"token_count": "integer", "type": "string", "message": "string"}]),
    "evidence_level": "string", "decision": "string",
}

# %% [markdown] slug="step-4-paths"
# ### 4.3 问题写成路径
#
# 每个问题写成一个字段路径：键之间用点，数组下标从 0 开始写在方括号里。
#
# | 文件里的问题 | 路径 |
# |---|---|
# | 缺少 `decision` | `decision` |
# | `workload` 里缺少 `dtype` | `workload.dtype` |
# | 第二行的 `eager` 里，`p95_ms` 是字符串 | `candidate_matrix[1].eager.p95_ms` |
# | `token_counts` 的第三个元素不是整数 | `workload.token_counts[2]` |
# | 整个文件不是对象，例如是一个列表 | `$` |
#
# 规则只有六条：
#
# 1. 缺键和类型不对，都报这个键的路径；列出**全部**问题，没有问题就返回 `[]`；
# 2. 父级缺失或类型不对，只报父级，不再报里面的键；
# 3. 多出来的键不算问题：新版本可以加字段；
# 4. 空值（`None`）只在写了 `(None, …)` 的地方合法；
# 5. 只查有没有、类型对不对，不查取值；空数组没有元素可查，合法；路径的先后不限；
# 6. 不修改传入的 `report`。
#
# ### 4.4 JSON 的类型不等于 Python 的类型
#
# | JSON 类型 | Python | 小心 |
# |---|---|---|
# | `integer` | `int` | `True` 不是整数 |
# | `number` | `int` 或 `float` | 整数也是数；`True` 不是数 |
# | `boolean` | `bool` | `1` 不是布尔值 |
# | `string` | `str` | |

# %% True 是整数吗 slug="bool-trap"
print("isinstance(True, int)  :", isinstance(True, int), "  Python：bool 是 int 的子类")
print("JSON 里 true 是整数吗  : False  JSON：boolean 与 integer 是两种类型 [3]")

# %% [markdown] slug="todo3-text"
# ### TODO 3 · `validate_report`
#
# 用时 20 分钟 ｜ 难度 ●●○ ｜ 要写的：函数体。把 `raise NotImplementedError(...)` 那一行换成你的代码。
#
# | 输入 | 输出 |
# |---|---|
# | `report`：`json.load` 得到的任何值 | 有问题的字段路径的列表 |
#
# `32.0` 算不算 `integer`？JSON Schema 说算<sup>[3]</sup>，很多程序说不算。两种写法都可以，测试不考。
#
# <details><summary>提示 1：用递归</summary>
#
# 写一个内部函数 `walk(value, spec, path)`：按 `spec` 的四种写法分四种情况。字典和列表里再调用自己。
# </details>
#
# <details><summary>提示 2：拼路径</summary>
#
# 最外层的路径是空串。对象的子路径是 `f"{path}.{key}" if path else key`，数组的子路径是 `f"{path}[{i}]"`。
# </details>
#
# <details><summary>提示 3：bool</summary>
#
# 类型是 `integer` 或 `number` 时，先排除 `bool`：`isinstance(value, bool)`。
# </details>

# %% 检查结果文件 slug="todo3" todo=3 stub="请先完成 TODO 3：实现 validate_report" nbgrader={"grade": false, "grade_id": "todo3", "locked": false, "schema_version": 3, "solution": true, "task": false}
def validate_report(report):
    """按 REPORT_SPEC 检查一份结果，返回缺失或类型不对的字段路径。规则见 4.3、4.4。"""
    ### BEGIN SOLUTION
    problems = []

    def has_type(value, name):
        if isinstance(value, bool):
            return name == "boolean"
        if name == "integer" and isinstance(value, float):
            return value.is_integer()  # JSON Schema 里 32.0 也是整数
        return isinstance(value, JSON_TYPES[name])

    def walk(value, spec, path):
        if isinstance(spec, tuple):
            if value is None:
                return
            spec = spec[1]
        if isinstance(spec, dict) and isinstance(value, dict):
            for key, inner in spec.items():
                child = f"{path}.{key}" if path else key
                if key in value:
                    walk(value[key], inner, child)
                else:
                    problems.append(child)
        elif isinstance(spec, list) and isinstance(value, list):
            for i, item in enumerate(value):
                walk(item, spec[0], f"{path}[{i}]")
        elif isinstance(spec, (dict, list)) or not has_type(value, spec):
            problems.append(path or "$")

    walk(report, REPORT_SPEC, "")
    return problems
    ### END SOLUTION


# %% 好文件没有问题，多出的键不算问题 todo=3 step="4.3 问题写成路径" nbgrader={"grade": true, "grade_id": "todo3_good", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
import copy
import json


PATH = {"median_ms": 0.5, "p95_ms": 1, "peak_allocated_bytes": None}
ROW = {"token_count": 1, "output_close": True, "graph_count": 1, "graph_break_count": 0, "gpu_operator_keys": ["add"]}
ROW.update(eager=PATH, compiled=PATH, speedup=1.0)
GOOD_REPORT = {
    "schema_version": "inference-mechanism-gpu/v2", "semantic_id": "INF-EXECUTION-DISPATCH",
    "profile_id": "INF-CUDA-MECHANISM", "run_label": "default",
    "workload": {"token_counts": [1, 32], "hidden_size": 1024, "dtype": "float32", "warmup": 10, "repeats": 30},
    "hardware": {"device": "test CPU", "torch_version": "2.13.0", "cuda": None},
    "candidate_matrix": [ROW, {**ROW, "token_count": 32}],
    "summary": {"correctness_passed": True, "captured_without_breaks": True, "faster_cases": 0, "total_cases": 2},
    "failure": None, "evidence_level": "local_mechanism_benchmark", "decision": "tune_or_fallback",
}
GOOD_REPORT = json.loads(json.dumps(GOOD_REPORT))  # 各行不再共用同一个 PATH


def test_good_report():
    got = validate_report(GOOD_REPORT)
    assert isinstance(got, list), f"期望返回列表，得到 {type(got).__name__}：{got!r}。重读 TODO 3 的输出一栏。"
    assert got == [], (
        f"好文件：期望 []，得到 {got}。可能的原因：把整数（如 p95_ms = 1）排除在 number 之外，或不接受空值。"
        "重读 4.3 规则 4 和 4.4。"
    )
    extended = copy.deepcopy(GOOD_REPORT)
    extended["extension"] = {"name": "paired-evidence/1"}
    extended["candidate_matrix"][0]["verdict"] = "tie"
    got = validate_report(extended)
    assert got == [], f"多出 extension 和 verdict：期望 []，得到 {got}。多出来的键不算问题。重读 4.3 规则 3。"


test_good_report()


# %% 缺键：报完整的路径，父级缺失只报父级 todo=3 step="4.3 问题写成路径" nbgrader={"grade": true, "grade_id": "todo3_missing", "locked": true, "points": 8, "schema_version": 3, "solution": false, "task": false}
def test_missing_keys():
    broken = copy.deepcopy(GOOD_REPORT)
    del broken["decision"], broken["workload"]["dtype"], broken["summary"]
    del broken["candidate_matrix"][1]["eager"]["p95_ms"], broken["candidate_matrix"][0]["compiled"]
    want = ["decision", "workload.dtype", "summary", "candidate_matrix[1].eager.p95_ms", "candidate_matrix[0].compiled"]
    got = validate_report(broken)
    lost, extra = sorted(set(want) - set(got)), sorted(set(got) - set(want))
    assert not lost, (
        f"删掉 {want}：期望都报告，漏了 {lost}，得到 {got}。"
        "可能的原因：没有走进嵌套的对象或每一行，或遇到第一个问题就返回。重读 4.3。"
    )
    assert not extra, (
        f"删掉 {want}：多报了 {extra}。可能的原因：父级已经缺失，又报了里面的键；或路径的写法不对。"
        "重读 4.3 规则 2。"
    )
    assert len(got) == len(want), f"每个问题只报一次：期望 {len(want)} 条，得到 {len(got)} 条：{got}。重读 4.3。"
    got = sorted(validate_report({}))
    assert got == sorted(GOOD_REPORT), (
        f"空对象：期望报告全部 {len(GOOD_REPORT)} 个顶层字段，得到 {got}。重读 4.3 规则 2。"
    )


test_missing_keys()


# %% 类型不对：bool、数组元素、嵌套对象 todo=3 step="4.4 JSON 的类型不等于 Python 的类型" nbgrader={"grade": true, "grade_id": "todo3_types", "locked": true, "points": 9, "schema_version": 3, "solution": false, "task": false}
def test_wrong_types():
    cases = [
        (("candidate_matrix", 1, "eager", "p95_ms"), "1.5", "candidate_matrix[1].eager.p95_ms", "字符串不是 number"),
        (("workload", "hidden_size"), True, "workload.hidden_size", "True 不是 integer：bool 是 int 的子类"),
        (("candidate_matrix", 0, "speedup"), False, "candidate_matrix[0].speedup", "False 不是 number"),
        (("summary", "correctness_passed"), 1, "summary.correctness_passed", "1 不是 boolean"),
        (("summary", "faster_cases"), 1.5, "summary.faster_cases", "1.5 不是 integer"),
        (("workload", "token_counts", 1), "32", "workload.token_counts[1]", "数组的每个元素都要检查，下标从 0 开始"),
        (("workload", "token_counts"), 32, "workload.token_counts", "期望数组，得到一个数"),
        (("hardware",), "test CPU", "hardware", "期望对象，得到字符串；只报父级"),
        (("candidate_matrix", 1), None, "candidate_matrix[1]", "行必须是对象"),
    ]
    for keys, value, want, cause in cases:
        broken = copy.deepcopy(GOOD_REPORT)
        node = broken
        for key in keys[:-1]:
            node = node[key]
        node[keys[-1]] = value
        got = validate_report(broken)
        if got == [] and len(keys) > 2:
            cause += "；或者没有走进数组的每个元素"
        assert got == [want], (
            f"把 {want} 改成 {value!r}：期望 [{want!r}]，得到 {got}。可能的原因：{cause}。重读 4.3、4.4。"
        )


test_wrong_types()


# %% 空值：只在写了 (None, …) 的地方合法 todo=3 step="4.3 问题写成路径" nbgrader={"grade": true, "grade_id": "todo3_null", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
def test_null():
    allowed = copy.deepcopy(GOOD_REPORT)
    allowed["failure"] = [{"token_count": 256, "type": "RuntimeError", "message": "out of memory"}]
    allowed["hardware"]["cuda"] = "13.0"
    allowed["candidate_matrix"][0]["eager"]["peak_allocated_bytes"] = 4096
    got = validate_report(allowed)
    assert got == [], (
        f"failure、cuda、peak_allocated_bytes 不为空也合法：期望 []，得到 {got}。重读 4.2 的 (None, 写法)。"
    )
    broken = copy.deepcopy(allowed)
    broken["failure"][0]["message"] = None
    broken["hardware"].update(cuda=13, device=None)
    got, want = sorted(validate_report(broken)), ["failure[0].message", "hardware.cuda", "hardware.device"]
    assert got == want, (
        f"期望 {want}，得到 {got}。可能的原因：空值到处都放行，或 (None, …) 里面没有检查。重读 4.3 规则 4。"
    )


test_null()


# %% 任何值都不崩溃 todo=3 step="4.3 问题写成路径" nbgrader={"grade": true, "grade_id": "todo3_root", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
def test_root():
    for value in ([], None, "report", 3):
        try:
            got = validate_report(value)
        except (TypeError, AttributeError, KeyError) as error:
            got = f"{type(error).__name__}: {error}"
        assert got == ["$"], (
            f"validate_report({value!r})：期望 ['$']，得到 {got}。整个文件不是对象时，报 '$'，不要崩溃。"
            "重读 4.3 的表。"
        )


test_root()

# %% 逐个破坏每一个必需的字段 todo=3 step="4.3 与 4.4" nbgrader={"grade": true, "grade_id": "todo3_every_key", "locked": true, "points": 8, "schema_version": 3, "solution": false, "task": false}
# 隐藏测试：评分时检查“逐个破坏每一个必需的字段”
### BEGIN HIDDEN TESTS
def hidden_nodes(node, path=""):
    """好文件里的每个位置：(父级的键序列, 路径)。"""
    pairs = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in pairs:
        here = f"{path}[{key}]" if isinstance(node, list) else f"{path}.{key}" if path else key
        yield (key,), here
        if isinstance(value, (dict, list)):
            for keys, deeper in hidden_nodes(value, here):
                yield (key, *keys), deeper


def hidden_test_every_key():
    report = copy.deepcopy(GOOD_REPORT)
    report["failure"] = [{"token_count": 256, "type": "RuntimeError", "message": "boom"}]
    for keys, path in list(hidden_nodes(report)):
        wrong = copy.deepcopy(report)
        parent = wrong
        for key in keys[:-1]:
            parent = parent[key]
        parent[keys[-1]] = {"unexpected": 1} if not isinstance(parent[keys[-1]], dict) else []
        got = validate_report(wrong)
        assert got == [path], f"{path} 的类型不对：期望 [{path!r}]，得到 {got}。重读 4.4。"
        if isinstance(parent, dict):
            del parent[keys[-1]]
            got = validate_report(wrong)
            assert got == [path], f"缺少 {path}：期望 [{path!r}]，得到 {got}。重读 4.3。"
    before = copy.deepcopy(report)
    validate_report(report)
    assert report == before, "检查时不要修改传入的 report。重读 4.3 规则 6。"
    empty = copy.deepcopy(report)
    empty["candidate_matrix"], empty["workload"]["token_counts"] = [], []
    assert validate_report(empty) == [], "空数组没有元素可查，合法。重读 4.3 规则 5。"


hidden_test_every_key()
### END HIDDEN TESTS

# %% [markdown] slug="todo3-why" todo=3 tags=["instructor-only"]
# **讲解（TODO 3）** 格式是数据，检查是一个按写法分情况的递归。`assets/schema/` 里的 JSON Schema 说的是同一件事；仓库的测试拿好文件和自动生成的坏文件比较两者报出的路径。
# 常见错误：`isinstance(True, int)` 放过布尔值；遇到第一个问题就返回；父级缺失还往里走，报出一串无用的路径，或直接崩溃；下标从 1 数起。

# %% 汇总 slug="summary" tags=["summary"]
def test_inf_cuda_mechanism():
    test_gpu_tier(), test_cpu_tiers(), test_blocked(), test_probe_input()
    test_rank(), test_integer_rank(), test_bad_values(), test_values_unchanged()
    test_good_report(), test_missing_keys(), test_wrong_types(), test_null(), test_root()
    print("✅ 第 1 章的可见测试全部通过：分档、百分位数、结果文件检查")


test_inf_cuda_mechanism()

# %% [markdown] slug="stop-here"
# ## 🛑 STOP HERE
#
# 先自己试。真的卡住了，再看[带讲解的参考答案]({{blob:solutions/01_preflight/01_preflight.ipynb}})。
# 下面是可选实验，不影响得分。

# %% [markdown] slug="step-5"
# ## 第五步 可选实验：这台机器的噪声有多大（Optional experiment: the noise floor）
#
# 预检真正跑两件小事，把结果写进文件。后面各章先读这个文件；读不到，就自己做一次简短的检查。
#
# | 问题 | 固定什么 | 观察什么 |
# |---|---|---|
# | 真的能编译吗？ | 一个小函数 | 第一次调用成不成、多久、结果对不对 |
# | 多大的差别才不是噪声？ | 同一个函数和自己比（A/A），单线程，先后随机 | 比值的 95% 区间，和由它定出的噪声带 |
#
# 噪声带（noise band）是 A/A 区间偏离 1 的幅度，至少取 5%。以后各章只有**整个区间**都越过噪声带，才说“快”或“慢”。
#
# 下面几格是全系列共用的测量代码，读懂大意即可。

# %% 共用：导入 slug="exp-imports" tags=["experiment"] include="assets/cells/exp_imports.py"

# %% 共用：运行模式 slug="exp-mode" tags=["experiment"] include="assets/cells/exp_mode.py"

# %% 共用：安全地写文件 slug="exp-file" tags=["experiment"] include="assets/cells/exp_file.py"

# %% 共用：硬件说明 slug="exp-hardware" tags=["experiment"] include="assets/cells/exp_hardware.py"

# %% 共用：同步与线程 slug="exp-timing" tags=["experiment"] include="assets/cells/exp_timing.py"

# %% 共用：成对计时 slug="exp-pairs" tags=["experiment"] include="assets/cells/exp_pairs.py"

# %% 共用：区间与噪声带 slug="exp-verdict" tags=["experiment"] include="assets/cells/exp_verdict.py"

# %% [markdown] slug="step-5-settings"
# ### 5.1 设置（Settings）
#
# `RUN_MODE` 有三个取值：`'dry_run'`（默认，什么也不跑）、`'real_cpu'`、`'real_gpu'`。改完后重新运行 5.1 到 5.3。
# 已有结果的 `RUN_LABEL` 不会被覆盖，只有 `'default'` 例外。

# %% 设置 slug="settings" tags=["settings"]
RUN_MODE = "dry_run"  # 'dry_run' | 'real_cpu' | 'real_gpu'
RUN_LABEL = "default"
PROFILE_ID = "INF-CUDA-MECHANISM"
PREFLIGHT_PATH = f"benchmarks/results/inf_cuda_mechanism_preflight_{RUN_LABEL}.json"
ELEMENT_COUNTS = [1024, 32768, 262144]  # A/A 测试用的张量大小（float32 元素个数）
WARMUP, PAIRS, SEED = 10, 120, 0

# %% [markdown] slug="step-5-run"
# ### 5.2 运行并保存（Run and save）
#
# 档位用你的 TODO 1 来判，P95 用你的 TODO 2 来算，所以真实运行之前要先完成它们。

# %% 编译检查 slug="compile-check" tags=["experiment"]
def check_compile(device):
    """真的编译并运行一个小函数。失败不抛出，写进结果。"""

    def small(x):
        return torch.nn.functional.silu(x) * 2 + 1

    x = torch.linspace(-4, 4, 256, device=device)
    begin = time.perf_counter()
    try:
        output = torch.compile(small)(x)  # 编译发生在这里，不在 torch.compile(small)
        synchronize(device)
    except Exception as error:
        message = " ".join(str(error).split())[:200]
        return {"status": "failed", "first_call_ms": None, "message": f"{type(error).__name__}: {message}"}
    first_call_ms = (time.perf_counter() - begin) * 1e3
    close = torch.allclose(output, small(x), rtol=1e-4, atol=1e-5)
    return {"status": "passed" if close else "wrong_result", "first_call_ms": first_call_ms, "message": ""}


# %% A/A 测试 slug="aa-test" tags=["experiment"]
def measure_noise(element_count, device):
    """同一个函数和自己比 PAIRS 次 → 一行结果。时间单位 ms。"""
    x = torch.linspace(-4, 4, element_count, device=device)
    rng, flush = random.Random(SEED), make_cache_flusher(device)

    def same():
        return torch.nn.functional.silu(x)

    for _ in range(WARMUP):
        same()
    pairs = [time_pair(same, same, device, flush, rng) for _ in range(PAIRS)]
    a_ms, b_ms = [a[0] for a, _ in pairs], [b[0] for _, b in pairs]
    ci95 = ratio_ci95(a_ms, b_ms, SEED)
    return {
        "element_count": element_count,
        "median_ms": nearest_rank(a_ms, 1, 2),
        "p95_ms": nearest_rank(a_ms, 95, 100),
        "aa_ratio": statistics.median(a_ms) / statistics.median(b_ms),
        "aa_ratio_ci95": ci95,
        "noise_band": noise_band_of(ci95),
    }


# %% 预检的全部步骤 slug="preflight" tags=["experiment"]
def run_preflight(device):
    """探测、分档、编译检查、A/A 测试 → 写入 PREFLIGHT_PATH 的 dict。"""
    check_label(PREFLIGHT_PATH, RUN_LABEL)
    probe = probe_environment()
    with torch.inference_mode(), one_cpu_thread():
        compile_check = check_compile(device)
        noise = [measure_noise(count, device) for count in ELEMENT_COUNTS]
    report = {
        "schema_version": "inference-preflight/v1",
        "semantic_id": "INF-CUDA-MECHANISM",
        "profile_id": PROFILE_ID,
        "run_label": RUN_LABEL,
        "run_mode": RUN_MODE,
        "probe": probe,
        **classify_environment(probe),  # tier 和 blocked
        "hardware": describe_hardware(device),
        "compile_check": compile_check,
        "noise": noise,
        "evidence_level": "environment_preflight",
    }
    save_report(PREFLIGHT_PATH, report)


# %% 运行 slug="preflight-run" tags=["experiment"]
device = experiment_device(RUN_MODE, PROFILE_ID)
if device is None:
    print("dry_run：什么也没跑。把 5.1 的 RUN_MODE 改成 'real_cpu' 或 'real_gpu'，再运行 5.1 和 5.2。")
else:
    run_preflight(device)

# %% [markdown] slug="step-5-read"
# ### 5.3 读结果，画图（Read and plot）

# %% 读结果 slug="reader" tags=["reader"]
def print_preflight(path):
    if not Path(path).exists():
        print(f"还没有结果文件：{path}\n请先在 5.1 改 RUN_MODE，再运行 5.2。")
        return
    report = json.loads(Path(path).read_text(encoding="utf-8"))
    print(f"tier: {report['tier']}   blocked: {report['blocked']}   run_mode: {report['run_mode']}")
    print(f"hardware: {json.dumps(report['hardware'], ensure_ascii=False)}")
    print(f"compile_check: {json.dumps(report['compile_check'], ensure_ascii=False)}")
    for row in report["noise"]:
        low, high = row["aa_ratio_ci95"]
        print(
            f"element_count={row['element_count']}  median={row['median_ms']:.4f} ms  P95={row['p95_ms']:.4f} ms"
            f"  A/A={row['aa_ratio']:.3f} [{low:.3f}, {high:.3f}]  noise_band={row['noise_band']:.3f}"
        )


print_preflight(PREFLIGHT_PATH)

# %% 画图的函数 slug="plot-function" tags=["plot"]
def plot_preflight(report, note=""):
    """左：每次调用的时间；右：A/A 比值、95% 区间和噪声带。只读数据，不测量。"""
    rows = report["noise"]
    sizes = [row["element_count"] for row in rows]
    fig, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), facecolor="white")
    left.plot(sizes, [row["median_ms"] for row in rows], "-", color="#003f7f", marker="o", label="median")
    left.plot(sizes, [row["p95_ms"] for row in rows], ":", color="#b34700", marker="s", label="P95")
    left.set(xscale="log", yscale="log", xlabel="elements", ylabel="time per call (ms)", title="silu(x), eager")
    tops = [1 + row["noise_band"] for row in rows]
    right.fill_between(sizes, [1 / top for top in tops], tops, color="0.85", label="noise band")
    ratios = [row["aa_ratio"] for row in rows]
    below = [max(0, row["aa_ratio"] - row["aa_ratio_ci95"][0]) for row in rows]
    above = [max(0, row["aa_ratio_ci95"][1] - row["aa_ratio"]) for row in rows]
    right.errorbar(sizes, ratios, yerr=[below, above], fmt="o", color="0.2", capsize=4, label="A/A ratio, 95% interval")
    right.axhline(1, color="0.4", linestyle="--", linewidth=1)
    right.set(xscale="log", xlabel="elements", ylabel="time ratio", title="The same function against itself")
    left.legend(frameon=False)
    right.legend(loc="lower center")  # 有边框：灰色的图例才不会融进灰带
    hardware = report["hardware"]
    fig.suptitle(f"{note}tier: {report['tier']}\n{hardware['device']}, torch {hardware['torch_version']}")
    fig.tight_layout()
    return fig


# %% 录好的样例 slug="plot-sample" tags=["plot"] sample="assets/samples/01_preflight_cpu.json"
# 本课程在一台双核 CPU 上录的结果。没有你自己的文件时，图画的就是它。

# %% 画图 slug="plot" tags=["plot"]
if Path(PREFLIGHT_PATH).exists():
    figure = plot_preflight(json.loads(Path(PREFLIGHT_PATH).read_text(encoding="utf-8")))
else:
    print(f"没有找到 {PREFLIGHT_PATH}，下面画的是录好的样例，不是你的机器。")
    figure = plot_preflight(RECORDED_SAMPLE, note="Recorded sample, not your machine. ")

# %% [markdown] slug="plot-caption"
# *图 3　左：`silu` 每次调用的中位数与 P95。右：同一个函数和自己比的时间比值，竖线是 95% 区间，灰带是噪声带。
# 两边是同一个函数：点离 1.0 多远，都不是谁快谁慢，只是噪声。*

# %% [markdown] slug="step-5-interpret"
# ### 5.4 解释与决定（Interpret and decide）
#
# | 结果 | 判断 | 下一步 |
# |---|---|---|
# | `compile_check.status` 是 `passed` | 这台机器真的编译并跑对了一个小函数 | 去第 2 章，用 `real_cpu` 或 `real_gpu` |
# | `failed` | 档位只说值得一试；`message` 里有原因 | 多半缺编译器：装好后重跑，或只用 `dry_run` |
# | `wrong_result` | 编译成功，结果不对 | 停下来，记录版本；不要再谈速度 |
# | `noise_band` 等于 0.05 | 机器安静，取了下限 5% | 差别超过 5% 才值得讨论 |
# | `noise_band` 远大于 0.05 | 机器忙，或与别人共用 | 关掉别的程序再测；否则只有很大的差别可信 |
#
# `passed` 只证明编译过的路径可用。某个融合的 kernel 是否真的运行了，要看 kernel 的名字，第 7 章再讲。

# %% [markdown] slug="questions"
# ## 思考题（Questions）
#
# 1. 一台机器有 CUDA、没有 `torch.compile`，却有 C++ 编译器。它在第几档？先修什么？
# 2. 30 个样本的 P95 是第 29 个。如果最慢的两个样本恰好碰上系统更新，P95 会怎样？换成 120 个呢？
# 3. 为什么 A/A 测试要随机决定先后，而不是先测完一边再测另一边？
# 4. `validate_report` 不查取值。举一个“结构全对、内容却不可信”的结果文件。该由谁来发现？
#
# <details><summary>思路</summary>
#
# 1. `cpu_eager`，`blocked = ['no_compile']`。先让 `torch.compile` 可用，就一步到了 `gpu`。
# 2. 第 29 个就是第二慢的样本，正好被污染；120 个样本的 P95 是第 114 个，两个坏样本碰不到它。
# 3. 频率、温度和别的进程随时间变化。分块测时，这些变化会整块落在一边，看起来像加速。
# 4. 例如 `speedup` 与两个中位数之比不符，或 `p95_ms` 小于 `median_ms`。这要靠读者复核，或另写语义检查。
# </details>

# %% [markdown] slug="mistakes"
# ## 常见误区（Common mistakes）
#
# | 误区 | 正确的说法 |
# |---|---|
# | “装了 CUDA 版 PyTorch，就是 GPU 机器” | 看 `torch.cuda.is_available()`：没有显卡或驱动时它是 `False` |
# | “`torch.compile` 没报错，就能编译” | 第一次调用才编译；要真的调用一次，并核对结果 |
# | “P95 就是排序后下标 `int(0.95 * n)`” | n=20 时它取到第 20 个，差一位；还有浮点误差 |
# | “加速 1.02 倍也是加速” | 先看噪声带；落在带里只能说“没有测出差别” |
# | “JSON 能读进来，就是好结果” | 能解析只说明语法对；字段和类型要另查 |

# %% [markdown] slug="sources"
# ## 参考资料（Sources）
#
# 1. PyTorch issue 92745：没有 C++ 编译器时 Inductor 报 `InvalidCxxCompiler`。<https://github.com/pytorch/pytorch/issues/92745>；`torch.compile` 文档：<https://docs.pytorch.org/docs/stable/generated/torch.compile.html>
# 2. Percentile, the nearest-rank method. <https://en.wikipedia.org/wiki/Percentile#The_nearest-rank_method>
# 3. JSON Schema, Numeric types. <https://json-schema.org/understanding-json-schema/reference/numeric>
# 4. A/A 测试与样本数的数字是本课程在双核 CPU、torch 2.13 上测得的；方法见[结果文件一览]({{blob:assets/experiments.md}})。
#
# **下一章**：{{chapter:02_operator_fusion|第 2 章 算子融合}}
