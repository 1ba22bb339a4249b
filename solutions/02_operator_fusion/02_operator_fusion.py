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
# # INF-OPERATOR-FUSION. Operator Fusion: Count Traffic and Launches | 算子融合入门：数清访存与启动
#
# [![在 Colab 打开本章](https://colab.research.google.com/assets/colab-badge.svg)]({{colab}}) [![在 ModelScope 打开本章](https://img.shields.io/badge/Open%20in-ModelScope-624aff)]({{modelscope}})
#
# **难度**：Easy ｜ **环境**：CPU-first + 可选单卡 GPU ｜ **标签**：推理优化、算子融合、成本模型、盈亏平衡 ｜ **预计用时**：60 分钟（阅读 20，三个 TODO 40；第五步的实验另计）｜ 版本 {{version}}
#
# “融合会更快”不是定律。它省下一些字节和启动，也带来新的固定开销。省得多还是花得多，可以先算，再测。本章做一个小小的成本模型，让它预测自己的实验。
#
# **学完本章，你能够**
#
# 1. 数出一段算子序列的访存字节数（traffic）和启动次数（launches），融合前、融合后都数得对；
# 2. 说清哪些中间结果可以不写回内存，哪些必须写；
# 3. 用两条直线算出融合开始划算的 token 数 $T^*$，并用实测检验它。
#
# **先修**：{{chapter:01_preflight|第 1 章 环境预检}}（档位、噪声带、结果文件）。会 Python 的列表、字典和集合。
#
# **上一章**：{{chapter:01_preflight|第 1 章 环境预检}} ｜ **下一章**：{{chapter:03_flash_attention|第 3 章 FlashAttention 模拟}}

# %% [markdown] slug="step-1"
# ## 第一步 融合省什么（What fusion saves）
#
# ### 1.1 直觉
#
# SwiGLU 里有一句 $y=\mathrm{silu}(g)\odot u$。逐个算子执行（eager）时，它是两次启动：
#
# 1. `silu`：读 $g$，写中间结果 $s$；
# 2. `mul`：读 $s$ 和 $u$，写 $y$。
#
# $s$ 刚写进内存，马上又读回来，之后再也没有人用。就像把切好的菜放回冰箱，转身又拿出来。
# 融合（fusion）把两步放进一个 kernel：$s$ 只活在寄存器里，不进内存。
#
# ![左：不融合，silu 读 g 写 s，mul 读 s 和 u 写 y，共五次经过内存。右：融合后只读 g 和 u、写 y，共三次]({{raw:assets/figures/02_traffic.png}})
#
# *图 1　同一个算式，经过内存的次数从 5 次变成 3 次，启动从 2 次变成 1 次。*
#
# | | 读 | 写 | 合计 | 启动 |
# |---|---|---|---|---|
# | 不融合 | $g$；$s,u$ | $s$；$y$ | $5N$ | 2 |
# | 融合 | $g,u$ | $y$ | $3N$ | 1 |
#
# $N$ 是一个张量的字节数。$T$ 个 token、隐藏维度 $H$、float32 时，$N=4TH$。
#
# ### 1.2 为什么数一数字节就有用
#
# 这类逐元素的算子，算得少、搬得多：时间主要花在搬数据上，叫访存受限（memory-bound）<sup>[1][2]</sup>。
# 所以字节数是时间的一个好代理。但它只是代理：缓存、指令和固定开销都不在里面。第五步会看到它差在哪里。

# %% 五个 N 与三个 N slug="five-and-three"
T, H, ELEMENT_BYTES = 128, 1024, 4  # float32
N = T * H * ELEMENT_BYTES
print(f"一个张量 N = {N} 字节")
print(f"不融合 5N = {5 * N} 字节，2 次启动")
print(f"融合   3N = {3 * N} 字节，1 次启动，字节数是原来的 {3 / 5:.0%}")

# %% [markdown] slug="step-2"
# ## 第二步 不融合的成本（Unfused cost）
#
# ### 2.1 怎样表示一段程序
#
# 程序是算子的列表，按执行次序排列。每个算子写明读哪些张量、写哪个张量：
#
# ```python
# ops = [{"in": ["g"], "out": "s"},        # s = silu(g)
#        {"in": ["s", "u"], "out": "y"}]   # y = s * u
# sizes = {"g": 4096, "u": 4096, "s": 4096, "y": 4096}   # 每个张量的字节数
# ```
#
# 每个张量最多由一个算子写出；没有算子写出的，是程序的输入。张量的名字只用来区分：字符串、整数、元组都可以。
#
# ### 2.2 怎样数
#
# 1. 每个算子一次启动；
# 2. 每个算子把它的每个**不同**的输入读一次：`x * x` 只读一次 `x`，值已经在寄存器里了；
# 3. 每个算子把输出写一次；
# 4. 算子之间什么也不记得：两个算子都用 `x`，就各读一次；
# 5. 没有输入的算子（例如填常数）只写不读；空程序的成本是 0 字节、0 次启动；
# 6. 不修改传入的参数。
#
# 写成公式，$s_t$ 是张量 $t$ 的字节数：
#
# $$ B_\text{unfused}=\sum_{o}\Big(\sum_{t\in\operatorname{set}(\text{in}_o)} s_t+s_{\text{out}_o}\Big),\qquad L_\text{unfused}=\text{算子的个数} $$
#
# | 程序 | 数法 | 字节 | 启动 |
# |---|---|---|---|
# | $s=\mathrm{silu}(g);\ y=s\cdot u$，每个 4096 | $(1+1)+(2+1)=5$ 个 | 20480 | 2 |
# | $y=x\cdot x$，每个 4096 | $1+1=2$ 个，不是 3 个 | 8192 | 1 |

# %% [markdown] slug="todo1-text"
# ### TODO 1 · `unfused_cost`
#
# 用时 10 分钟 ｜ 难度 ●○○ ｜ 要写的：函数体。把 `raise NotImplementedError(...)` 那一行换成你的代码。
#
# | 输入 | 输出 |
# |---|---|
# | `ops`：算子的列表；`sizes`：张量 → 字节数 | `{'bytes': 整数, 'launches': 整数}` |
#
# <details><summary>提示 1：一个算子的字节</summary>
#
# 先写出一个算子的成本：不同输入的大小之和，加输出的大小。再对所有算子求和。
# </details>
#
# <details><summary>提示 2：去重去到哪里</summary>
#
# `set(op["in"])` 在**一个算子之内**去重。集合若放在循环外面，就变成整段程序只读一次，那是融合才有的好处。
# </details>

# %% 不融合的成本 slug="todo1" todo=1 stub="请先完成 TODO 1：实现 unfused_cost" nbgrader={"grade": false, "grade_id": "todo1", "locked": false, "schema_version": 3, "solution": true, "task": false}
def unfused_cost(ops, sizes):
    """逐个算子执行的成本 {'bytes', 'launches'}。规则见 2.2。"""
    ### BEGIN SOLUTION
    traffic = 0
    for op in ops:
        traffic += sum(sizes[tensor] for tensor in set(op["in"]))  # 每个不同的输入读一次
        traffic += sizes[op["out"]]  # 写一次
    return {"bytes": traffic, "launches": len(ops)}
    ### END SOLUTION


# %% 一条链：读、写、启动 todo=1 step="2.2 怎样数" nbgrader={"grade": true, "grade_id": "todo1_chain", "locked": true, "points": 7, "schema_version": 3, "solution": false, "task": false}
def test_unfused_chain():
    ops = [{"in": ["g"], "out": "s"}, {"in": ["s", "u"], "out": "y"}]
    sizes = {"g": 10, "u": 200, "s": 3000, "y": 40000, "other": 7}
    got = unfused_cost(ops, sizes)
    assert isinstance(got, dict) and set(got) == {"bytes", "launches"}, (
        f"期望含 'bytes' 和 'launches' 的字典，得到 {got!r}。重读 TODO 1 的输出一栏。"
    )
    assert got["launches"] == 2, f"两个算子：期望 2 次启动，得到 {got['launches']}。每个算子一次启动。重读 2.2 规则 1。"
    assert got["bytes"] == 46210, (
        f"s = silu(g); y = s * u，大小 {sizes}：期望 10+3000 + 3000+200+40000 = 46210 字节，得到 {got['bytes']}。"
        "可能的原因：漏了读或写；中间结果 s 要写一次、读一次；程序没有用到的张量不算。重读 2.2 规则 2、3。"
    )


test_unfused_chain()


# %% 共享的输入：各读各的 todo=1 step="2.2 怎样数" nbgrader={"grade": true, "grade_id": "todo1_shared", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
def test_unfused_shared():
    ops = [{"in": ["x", "w"], "out": "a"}, {"in": ["x"], "out": "b"}, {"in": ["a", "b"], "out": "z"}]
    sizes = {"x": 1000, "w": 7, "a": 50, "b": 30, "z": 20}
    got = unfused_cost(ops, sizes)["bytes"]
    assert got == 2187, (
        f"x 被两个算子读：期望 (1000+7+50) + (1000+30) + (50+30+20) = 2187 字节，得到 {got}。"
        "可能的原因：在整段程序里去重，x 只算了一次；不融合时各读各的。重读 2.2 规则 4。"
    )


test_unfused_shared()


# %% 同一个算子里重复的输入只读一次 todo=1 step="2.2 怎样数" nbgrader={"grade": true, "grade_id": "todo1_duplicate", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
def test_unfused_duplicate():
    got = unfused_cost([{"in": ["x", "x"], "out": "y"}], {"x": 100, "y": 60})["bytes"]
    assert got == 160, f"y = x * x：期望 100 + 60 = 160 字节，得到 {got}。x 在一个算子里只读一次。重读 2.2 规则 2。"
    got = unfused_cost([{"in": ["x", "w", "x"], "out": "y"}], {"x": 100, "w": 100, "y": 60})["bytes"]
    assert got == 260, (
        f"y = x * w + x：期望 100 + 100 + 60 = 260 字节，得到 {got}。去重看的是张量的名字，不是大小。"
        "重读 2.2 规则 2。"
    )


test_unfused_duplicate()


# %% 边界：空程序、没有输入的算子、不改参数 todo=1 step="2.2 怎样数" nbgrader={"grade": true, "grade_id": "todo1_edges", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
def test_unfused_edges():
    got = unfused_cost([], {"x": 8})
    assert got == {"bytes": 0, "launches": 0}, f"空程序：期望 0 字节、0 次启动，得到 {got}。重读 2.2 规则 5。"
    got = unfused_cost([{"in": [], "out": "c"}], {"c": 8})
    assert got == {"bytes": 8, "launches": 1}, f"填常数：期望 8 字节、1 次启动，得到 {got}。重读 2.2 规则 5。"
    ops, sizes = [{"in": ["b", "a", "b"], "out": "c"}], {"a": 1, "b": 2, "c": 4}
    unfused_cost(ops, sizes)
    assert ops == [{"in": ["b", "a", "b"], "out": "c"}] and sizes == {"a": 1, "b": 2, "c": 4}, (
        f"参数被改成了 ops={ops}, sizes={sizes}。只读取，不要排序、弹出或赋值。重读 2.2 规则 6。"
    )


test_unfused_edges()

# %% 随机的程序 todo=1 step="2.2 怎样数" nbgrader={"grade": true, "grade_id": "todo1_random", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
# 隐藏测试：评分时检查“随机的程序”
### BEGIN HIDDEN TESTS
import random


def hidden_program(rng, length):
    """随机的合法程序：输入来自程序的输入或前面的输出，允许重复；返回 (ops, sizes)。"""
    known, ops = [f"x{i}" for i in range(3)], []
    for number in range(length):
        ops.append({"in": [rng.choice(known) for _ in range(rng.randint(1, 3))], "out": f"t{number}"})
        known.append(f"t{number}")
    return ops, {tensor: rng.choice((4, 64, 4096)) for tensor in known}


def hidden_test_unfused_random():
    rng = random.Random(2)
    for length in (1, 2, 3, 5, 9):
        for _ in range(20):
            ops, sizes = hidden_program(rng, length)
            want = 0
            for op in ops:
                seen = []
                for tensor in op["in"]:
                    if tensor not in seen:
                        seen.append(tensor)
                        want += sizes[tensor]
                want += sizes[op["out"]]
            got = unfused_cost(ops, sizes)
            assert got == {"bytes": want, "launches": length}, f"{ops}, {sizes}：期望 {want}，得到 {got}。重读 2.2。"
    got = unfused_cost([{"in": [0, 1], "out": (2, "a")}], {0: 1, 1: 2, (2, "a"): 4})
    assert got == {"bytes": 7, "launches": 1}, f"张量的名字不一定是字符串，得到 {got}。重读 2.1。"


hidden_test_unfused_random()
### END HIDDEN TESTS

# %% [markdown] slug="todo1-why" todo=1 tags=["instructor-only"]
# **讲解（TODO 1）** 去重的范围是全部难点：在一个算子之内去重，算子之间不去重。常见错误：
#
# 1. 集合放在循环外，共享的输入只算一次。这样一来，融合在模型里就没有好处可言；
# 2. 用 `op["in"]` 直接求和，`x * x` 算成读两次；
# 3. 对大小去重：`set(sizes[t] for t in op["in"])`，两个一样大的张量就丢了一个；
# 4. 只数读或只数写。

# %% [markdown] slug="step-3"
# ## 第三步 融合后的成本（Fused cost）
#
# ### 3.1 哪些中间结果可以不写
#
# 把几个算子编成一组（group），作为一个 kernel 执行。组里产生的张量分三种：
#
# | 张量 | 谁要用 | 要写回内存吗 |
# |---|---|---|
# | 纯中间结果 | 只有组里的算子 | 不写，也不读 |
# | 逃逸的中间结果（escaping intermediate） | 组外还有算子要用 | 要写一次 |
# | 活跃输出（live-out） | 程序结束后还要用 | 要写一次 |
#
# 残差加 RMSNorm 是最常见的逃逸：$h=x+r$，$y=\mathrm{norm}(h)$。下一个残差还要 $h$，所以融合后 $h$ 照样得写。
#
# ![组里有 add 和 norm 两个算子，h 从组里连到组外的算子，所以 h 必须写回内存；不逃逸的中间结果留在寄存器里]({{raw:assets/figures/02_escape.png}})
#
# *图 2　$h$ 逃逸：虚线框里是一组，$h$ 被框外的算子使用，必须写回。*
#
# | 例子（张量都是 $N$，不计权重） | 不融合 | 融合 |
# |---|---|---|
# | $\mathrm{silu}(g)\odot u$ | $5N$ | $3N$ |
# | add + norm，$h$ 不逃逸 | $5N$ | $3N$：读 $x,r$，写 $y$ |
# | add + norm，$h$ 逃逸 | $5N$ | $4N$：读 $x,r$，写 $h,y$ |
#
# ### 3.2 怎样数
#
# `group` 是算子在 `ops` 里的下标；`live_out` 是程序结束后还要用的张量。数的是**整段程序**：
#
# 1. 组是一次启动，组外的算子各一次：$L_\text{fused}=n-|\text{group}|+1$；
# 2. 组的外部输入（不在组里产生的）只读一次，组里有几个算子用它都一样；
# 3. 组里产生的张量，组里用时不从内存读；
# 4. 组里产生的张量，组外有算子用它，**或**它在 `live_out` 里，就写一次，只写一次；否则不写；
# 5. 组外的算子照 2.2 数，包括读逃逸的张量；
# 6. 组里的下标不分先后，也不一定相邻；`live_out` 里可能有不在组里产生的张量，它们与组无关；
# 7. 不修改传入的参数。
#
# 由此可知：只有一个算子的组，什么也省不下，只要它的输出有人用。
#
# 这里只数成本，不问能不能融合。组里的算子依赖组外、组外又依赖组里时，会成环，那样的组不合法；{{chapter:05_graph_capture|第 5 章}}再管。

# %% [markdown] slug="todo2-text"
# ### TODO 2 · `fused_cost`
#
# 用时 20 分钟 ｜ 难度 ●●○ ｜ 要写的：函数体
#
# | 输入 | 输出 |
# |---|---|
# | `ops`, `sizes` 同上；`group`：非空的下标列表；`live_out`：张量的列表 | `{'bytes': 整数, 'launches': 整数}`，整段程序的 |
#
# <details><summary>提示 1：四个集合</summary>
#
# 先求四样东西：组里产生的张量 `made`；组里用到的张量减去 `made`，就是外部输入；组外的算子；组外用到的张量。
# </details>
#
# <details><summary>提示 2：要写的张量</summary>
#
# 要写的是 `made` 与“组外用到的，或 `live_out` 里的”的交集。
# </details>
#
# <details><summary>提示 3：组外的算子</summary>
#
# 组外的算子就是一段不融合的程序：可以直接调用你的 `unfused_cost`。
# </details>

# %% 融合后的成本 slug="todo2" todo=2 stub="请先完成 TODO 2：实现 fused_cost" nbgrader={"grade": false, "grade_id": "todo2", "locked": false, "schema_version": 3, "solution": true, "task": false}
def fused_cost(ops, group, sizes, live_out):
    """把 group 里的算子合成一次启动，整段程序的成本 {'bytes', 'launches'}。规则见 3.2。"""
    ### BEGIN SOLUTION
    inside = [ops[i] for i in set(group)]
    outside = [op for i, op in enumerate(ops) if i not in set(group)]
    made = {op["out"] for op in inside}
    external = {tensor for op in inside for tensor in op["in"]} - made  # 每个只读一次
    needed = {tensor for op in outside for tensor in op["in"]} | set(live_out)
    written = made & needed  # 逃逸的和活跃的要写
    traffic = sum(sizes[tensor] for tensor in external) + sum(sizes[tensor] for tensor in written)
    for op in outside:
        traffic += sum(sizes[tensor] for tensor in set(op["in"])) + sizes[op["out"]]
    return {"bytes": traffic, "launches": len(outside) + 1}
    ### END SOLUTION


# %% 纯中间结果：不写，也不读 todo=2 step="3.1 哪些中间结果可以不写" nbgrader={"grade": true, "grade_id": "todo2_intermediate", "locked": true, "points": 8, "schema_version": 3, "solution": false, "task": false}
def test_fused_intermediate():
    ops = [{"in": ["g"], "out": "s"}, {"in": ["s", "u"], "out": "y"}]
    sizes = {"g": 10, "u": 200, "s": 3000, "y": 40000}
    got = fused_cost(ops, [0, 1], sizes, ["y"])
    assert isinstance(got, dict) and set(got) == {"bytes", "launches"}, (
        f"期望含 'bytes' 和 'launches' 的字典，得到 {got!r}。重读 TODO 2 的输出一栏。"
    )
    assert got["launches"] == 1, f"两个算子合成一组：期望 1 次启动，得到 {got['launches']}。重读 3.2 规则 1。"
    assert got["bytes"] == 40210, (
        f"silu(g) * u 融合，s 的大小是 3000：期望 10 + 200 + 40000 = 40210 字节，得到 {got['bytes']}。"
        "可能的原因：s 仍算了写或读（多 3000 或 6000）；活跃输出 y 没写（少 40000）。重读 3.2 规则 3、4。"
    )
    chain = [{"in": [f"t{i}"], "out": f"t{i + 1}"} for i in range(4)]
    got = fused_cost(chain, [0, 1, 2, 3], {f"t{i}": 10**i for i in range(5)}, ["t4"])
    want = {"bytes": 10001, "launches": 1}
    assert got == want, f"四个算子的链：只读 t0、只写 t4，期望 {want}，得到 {got}。重读 3.2 规则 3。"


test_fused_intermediate()


# %% 外部输入：整组只读一次 todo=2 step="3.2 怎样数" nbgrader={"grade": true, "grade_id": "todo2_external", "locked": true, "points": 7, "schema_version": 3, "solution": false, "task": false}
def test_fused_external():
    ops = [{"in": ["x", "w"], "out": "a"}, {"in": ["x", "x"], "out": "b"}, {"in": ["a", "b", "x"], "out": "z"}]
    sizes = {"x": 1000, "w": 7, "a": 50, "b": 30, "z": 20}
    got = fused_cost(ops, [0, 1, 2], sizes, ["z"])["bytes"]
    assert got == 1027, (
        f"组里三个算子都用 x：期望 1000 + 7 + 20 = 1027 字节，得到 {got}。"
        "可能的原因：每个算子各读一次 x（多 1000 的倍数）。重读 3.2 规则 2。"
    )
    got = fused_cost([{"in": ["x", "w"], "out": "y"}], [0], {"x": 8, "w": 8, "y": 8}, ["y"])["bytes"]
    assert got == 24, (
        f"两个一样大的外部输入：期望 8 + 8 + 8 = 24 字节，得到 {got}。去重看张量的名字，不是大小。"
        "重读 3.2 规则 2。"
    )


test_fused_external()


# %% 逃逸的中间结果：照样写一次，组外照样读 todo=2 step="3.1 哪些中间结果可以不写" nbgrader={"grade": true, "grade_id": "todo2_escape", "locked": true, "points": 8, "schema_version": 3, "solution": false, "task": false}
def test_fused_escape():
    ops = [
        {"in": ["x", "r"], "out": "h"},  # h = x + r
        {"in": ["h", "w"], "out": "y"},  # y = norm(h) * w
        {"in": ["y"], "out": "m"},  # 组外
        {"in": ["m", "h"], "out": "o"},  # 组外，隔了一步还要用 h
        {"in": ["h"], "out": "p"},  # 组外，又用一次 h
    ]
    sizes = {"x": 1, "r": 2, "h": 1000, "w": 4, "y": 20, "m": 100, "o": 50000, "p": 600000}
    got = fused_cost(ops, [0, 1], sizes, ["o", "p"])
    group, rest = 1 + 2 + 4 + 1000 + 20, (20 + 100) + (100 + 1000 + 50000) + (1000 + 600000)
    assert got["bytes"] == group + rest, (
        f"h 和 y 都被组外使用：期望组 {group} + 组外 {rest} = {group + rest} 字节，"
        f"得到 {got['bytes']}，差 {got['bytes'] - group - rest}。"
        "可能的原因：逃逸的 h（1000）没写，或写了两次；组外没有读它；只看了紧接着的一个算子。"
        "若你调用了 unfused_cost，先让 TODO 1 的测试全部通过。重读 3.2 规则 4、5。"
    )
    assert got["launches"] == 4, f"五个算子、组里两个：期望 4 次启动，得到 {got['launches']}。重读 3.2 规则 1。"


test_fused_escape()


# %% live_out：程序结束后还要用的也要写 todo=2 step="3.2 怎样数" nbgrader={"grade": true, "grade_id": "todo2_live_out", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
def test_fused_live_out():
    ops = [{"in": ["x", "r"], "out": "h"}, {"in": ["h"], "out": "y"}]
    sizes = {"x": 1, "r": 2, "h": 1000, "y": 20}
    for live_out, want, cause in (
        (["y"], 23, "h 没有人再用，不写"),
        (["h", "y"], 1023, "h 在 live_out 里，组外没有算子用它也要写"),
        (["x", "h", "y"], 1023, "x 不在组里产生，live_out 里有它也不由这个组写"),
    ):
        got = fused_cost(ops, [0, 1], sizes, live_out)["bytes"]
        assert got == want, (
            f"live_out={live_out}：期望 {want} 字节，得到 {got}。可能的原因：{cause}。重读 3.2 规则 4、6。"
        )
    ops.append({"in": ["h"], "out": "z"})
    got = fused_cost(ops, [0, 1], {**sizes, "z": 300}, ["h", "y", "z"])["bytes"]
    assert got == 2323, (
        f"h 既逃逸又活跃：期望只写一次，共 1+2+1000+20 + 1000+300 = 2323 字节，得到 {got}。重读 3.2 规则 4。"
    )


test_fused_live_out()


# %% 组外的算子照旧，下标不必相邻 todo=2 step="3.2 怎样数" nbgrader={"grade": true, "grade_id": "todo2_rest", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
def test_fused_rest():
    ops = [
        {"in": ["x"], "out": "a"},  # 组外，在前
        {"in": ["a", "x"], "out": "b"},  # 组里
        {"in": ["x", "x"], "out": "c"},  # 组外，夹在中间
        {"in": ["b", "x"], "out": "d"},  # 组里
        {"in": ["d", "c"], "out": "e"},  # 组外，在后
    ]
    sizes = {"x": 1, "a": 20, "b": 300, "c": 4000, "d": 50000, "e": 600000}
    want = (1 + 20) + (20 + 1 + 50000) + (1 + 4000) + (50000 + 4000 + 600000)
    for group in ([1, 3], [3, 1]):
        got = fused_cost(ops, group, sizes, ["e"])
        assert got["launches"] == 4, (
            f"group={group}：期望 5 - 2 + 1 = 4 次启动，得到 {got['launches']}。组外的算子也要启动，夹在两个下标中间的也是组外的。"
            "重读 3.2 规则 1。"
        )
        assert got["bytes"] == want, (
            f"group={group}：期望 {want} 字节，得到 {got['bytes']}，差 {got['bytes'] - want}。可能的原因："
            "漏了组外的算子；组外与组之间也去了重；把两个下标之间的算子都当成组里的；"
            "或调用的 unfused_cost（TODO 1）还不对。重读 3.2 规则 5、6。"
        )
    assert group == [3, 1], f"传入的 group 被改成了 {group}。只读取，不要就地排序。重读 3.2 规则 7。"


test_fused_rest()

# %% 只有一个算子的组 todo=2 step="3.2 怎样数" nbgrader={"grade": true, "grade_id": "todo2_single", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# 隐藏测试：评分时检查“只有一个算子的组”
### BEGIN HIDDEN TESTS
def hidden_test_single_group():
    rng = random.Random(3)
    for _ in range(20):
        ops, sizes = hidden_program(rng, 6)
        live_out = [op["out"] for op in ops]
        for index in range(len(ops)):
            traffic = sum(sizes[tensor] for op in ops for tensor in {*op["in"], op["out"]})
            got, want = fused_cost(ops, [index], sizes, live_out), {"bytes": traffic, "launches": len(ops)}
            assert got == want, f"只有算子 {index} 的组什么也省不下：期望 {want}，得到 {got}。重读 3.2。"


hidden_test_single_group()
### END HIDDEN TESTS

# %% 随机的程序和组 todo=2 step="3.2 怎样数" nbgrader={"grade": true, "grade_id": "todo2_random", "locked": true, "points": 7, "schema_version": 3, "solution": false, "task": false}
# 隐藏测试：评分时检查“随机的程序和组”
### BEGIN HIDDEN TESTS
def hidden_fused_bytes(ops, group, sizes, live_out):
    """逐个张量地数：谁读、谁写。"""
    total = 0
    for tensor, size in sizes.items():
        producer = next((i for i, op in enumerate(ops) if op["out"] == tensor), None)
        users = [i for i, op in enumerate(ops) if tensor in op["in"]]
        outside = [i for i in users if i not in group]
        total += size * len(outside)  # 组外每个算子读一次
        if producer not in group and any(i in group for i in users):
            total += size  # 整组读一次
        if producer is not None and (producer not in group or outside or tensor in live_out):
            total += size  # 写一次
    return total


def hidden_test_fused_random():
    rng = random.Random(4)
    for _ in range(200):
        ops, sizes = hidden_program(rng, rng.randint(1, 7))
        group = rng.sample(range(len(ops)), rng.randint(1, len(ops)))
        used = {tensor for op in ops for tensor in op["in"]}
        live_out = [op["out"] for op in ops if op["out"] not in used or rng.random() < 0.2]
        before = repr((ops, group, sizes, live_out))
        got = fused_cost(ops, group, sizes, live_out)
        want = {"bytes": hidden_fused_bytes(ops, group, sizes, live_out), "launches": len(ops) - len(group) + 1}
        assert got == want, f"ops={ops}, group={group}, live_out={live_out}：期望 {want}，得到 {got}。重读 3.2。"
        assert repr((ops, group, sizes, live_out)) == before, "参数被改动了。重读 3.2 规则 7。"


hidden_test_fused_random()
### END HIDDEN TESTS

# %% [markdown] slug="todo2-why" todo=2 tags=["instructor-only"]
# **讲解（TODO 2）** 用集合最清楚：外部输入 = 用到的 − 产生的；要写的 = 产生的 ∩（组外用到的 ∪ 活跃的）。常见错误：
#
# 1. 逃逸的中间结果没写：在模型里省得太多，实测就对不上；
# 2. 只看紧跟在组后面的一个算子有没有用；
# 3. 把 `live_out` 里所有张量都写一遍，包括程序的输入；
# 4. 把组外的算子一起去重；
# 5. 用 `ops[min(group):max(group) + 1]` 取组，不相邻时多取了。

# %% [markdown] slug="step-4"
# ## 第四步 从字节到时间：盈亏平衡（Break-even）
#
# ### 4.1 两条直线
#
# 把一次调用的时间写成固定开销加上随 token 数增长的部分：
#
# $$ t(T)=a+b\,T\quad(\text{µs}) $$
#
# - $a$：与 $T$ 无关。启动、检查参数、进出框架；
# - $b$：每多一个 token 多花的时间。访存受限时，它大致与每个 token 的字节数成正比。
#
# 本课程在一台双核 CPU 上（单线程，$H=1024$，float32，torch 2.13）测 $\mathrm{silu}(g)\odot u$，拟合得到<sup>[4]</sup>：
#
# | 路径 | $a$（µs） | $b$（µs / token） | 为什么 |
# |---|---|---|---|
# | eager | 1.40 | 0.339 | 两次启动都很轻；每个 token 搬 5 个 $H$ |
# | compiled（融合） | 15.36 | 0.267 | 每次调用先过 `torch.compile` 的守卫（guard）检查<sup>[3]</sup>；每个 token 搬 3 个 $H$ |
#
# 启动次数少了一次，固定开销反而**大**了。所以 $T$ 小时融合更慢，$T$ 大时更快，中间有一个交点：
#
# $$ a_e+b_eT^*=a_f+b_fT^*\quad\Longrightarrow\quad T^*=\frac{a_f-a_e}{b_e-b_f} $$
#
# ![两条直线：eager 起点低、斜率大，compiled 起点高、斜率小，在 T 约等于 194 处相交]({{raw:assets/figures/02_break_even.png}})
#
# *图 3　两条直线相交于 $T^*\approx 193.9$：从 194 个 token 起，融合不再更慢。*

# %% 用上面的四个数预测加速比 slug="predict"
EAGER_LINE, FUSED_LINE = (1.40, 0.339), (15.36, 0.267)  # (固定 µs, 每 token µs)
MEASURED = {128: 0.89, 192: 1.01, 256: 1.06}  # 同一台机器上另外测得的加速比
for tokens, measured in MEASURED.items():
    eager_us, fused_us = (fixed + slope * tokens for fixed, slope in (EAGER_LINE, FUSED_LINE))
    predicted = f"eager {eager_us:.1f} µs, fused {fused_us:.1f} µs, 预测 {eager_us / fused_us:.2f}x"
    print(f"T={tokens}: {predicted}, 实测 {measured:.2f}x")

# %% [markdown] slug="step-4-edges"
# ### 4.2 没有交点的情形
#
# $T^*$ 的意思是“**从慢变快的交点**”。按次序判断：
#
# 1. **先看斜率**。$b_f\ge b_e$：融合的线更陡，或两条线平行，没有从慢变快的交点，返回 `None`；
# 2. **再看起点**。斜率更小，且 $a_f\le a_e$：从 0 个 token 起就不更慢，返回 `0`，不要返回负数；
# 3. **否则**返回公式的值。它是实数，不取整：要多少个 token 由调用的人决定怎样取整。
#
# | `eager` | `fused` | $T^*$ | 理由 |
# |---|---|---|---|
# | (1.40, 0.339) | (15.36, 0.267) | 193.9 | 交点 |
# | (5, 0.3) | (20, 0.3) | `None` | 平行：永远差 15 µs |
# | (5, 0.3) | (1, 0.4) | `None` | 更陡：开头快，后来一直慢 |
# | (5, 0.3) | (1, 0.2) | `0` | 从一开始就更快 |

# %% [markdown] slug="todo3-text"
# ### TODO 3 · `break_even_tokens`
#
# 用时 10 分钟 ｜ 难度 ●○○ ｜ 要写的：函数体
#
# | 输入 | 输出 |
# |---|---|
# | `eager`, `fused`：`(固定 µs, 每 token µs)` | 实数 $T^*$、`0` 或 `None` |
#
# <details><summary>提示 1：先判断，后除</summary>
#
# 平行的两条线会让分母为 0。按 4.2 的次序，先用 `if` 排除它。
# </details>
#
# <details><summary>提示 2：符号</summary>
#
# 分子是融合**多花**的固定开销，分母是融合**省下**的斜率。两个都是正数时，$T^*$ 才是正数。
# </details>

# %% 盈亏平衡点 slug="todo3" todo=3 stub="请先完成 TODO 3：实现 break_even_tokens" nbgrader={"grade": false, "grade_id": "todo3", "locked": false, "schema_version": 3, "solution": true, "task": false}
def break_even_tokens(eager, fused):
    """融合从慢变快的 token 数；没有这样的点返回 None，一开始就不更慢返回 0。规则见 4.2。"""
    ### BEGIN SOLUTION
    (eager_fixed, eager_slope), (fused_fixed, fused_slope) = eager, fused
    if fused_slope >= eager_slope:
        return None
    if fused_fixed <= eager_fixed:
        return 0
    return (fused_fixed - eager_fixed) / (eager_slope - fused_slope)
    ### END SOLUTION


# %% 交点：公式的值，不取整 todo=3 step="4.1 两条直线" nbgrader={"grade": true, "grade_id": "todo3_formula", "locked": true, "points": 10, "schema_version": 3, "solution": false, "task": false}
def test_break_even_formula():
    cases = [
        ((1.40, 0.339), (15.36, 0.267), 13.96 / 0.072, "图 3 的两条线"),
        ((0, 3), (10, 1), 5, "分子 10 - 0，分母 3 - 1"),
        ((2, 4), (12, 1), 10 / 3, "不取整"),
        ((1, 0.5), (3, 0), 4, "融合的斜率可以是 0"),
    ]
    for eager, fused, want, cause in cases:
        got = break_even_tokens(eager, fused)
        assert isinstance(got, (int, float)) and not isinstance(got, bool), (
            f"eager={eager}, fused={fused}：期望一个数（{want:.4f}），得到 {got!r}。重读 4.1。"
        )
        assert abs(got - want) <= 1e-9 * want, (
            f"eager={eager}, fused={fused}：期望 {want:.4f}，得到 {got}。"
            f"可能的原因：取了整、分子分母的次序不一致、或把 eager 和 fused 弄反。提示：{cause}。重读 4.1。"
        )


test_break_even_formula()


# %% 斜率没有更小：None todo=3 step="4.2 没有交点的情形" nbgrader={"grade": true, "grade_id": "todo3_none", "locked": true, "points": 8, "schema_version": 3, "solution": false, "task": false}
def test_break_even_none():
    cases = [
        ((5, 0.3), (20, 0.3), "两条线平行，起点更高：永远更慢"),
        ((5, 0.3), (20, 0.4), "更陡，起点也更高：公式会给出负数"),
        ((5, 0.3), (1, 0.4), "更陡：开头快，后来一直慢；先看斜率，再看起点"),
    ]
    for eager, fused, cause in cases:
        try:
            got = break_even_tokens(eager, fused)
        except ZeroDivisionError:
            got = "ZeroDivisionError"
        assert got is None, f"eager={eager}, fused={fused}：期望 None，得到 {got!r}。原因：{cause}。重读 4.2。"


test_break_even_none()


# %% 一开始就不更慢：0 todo=3 step="4.2 没有交点的情形" nbgrader={"grade": true, "grade_id": "todo3_zero", "locked": true, "points": 7, "schema_version": 3, "solution": false, "task": false}
def test_break_even_zero():
    for eager, fused, cause in (
        ((5, 0.3), (1, 0.2), "起点和斜率都更小；公式会给出负数"),
        ((5, 0.3), (5, 0.2), "起点相同，斜率更小：T=0 时相等，之后一直更快"),
    ):
        got = break_even_tokens(eager, fused)
        assert got is not None, f"eager={eager}, fused={fused}：期望 0，得到 None。原因：{cause}。重读 4.2 规则 2。"
        assert got == 0, f"eager={eager}, fused={fused}：期望 0，得到 {got}。原因：{cause}。重读 4.2 规则 2。"


test_break_even_zero()

# %% 随机的直线 todo=3 step="4.1 与 4.2" nbgrader={"grade": true, "grade_id": "todo3_random", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
# 隐藏测试：评分时检查“随机的直线”
### BEGIN HIDDEN TESTS
def hidden_test_break_even_random():
    rng = random.Random(5)
    for _ in range(200):
        eager = [rng.randint(0, 50) / 10, rng.randint(1, 9) / 8]
        fused = [rng.randint(0, 200) / 10, rng.randint(1, 9) / 8]
        if fused[1] == eager[1] and fused[0] <= eager[0]:
            continue  # 平行且不更高：另由 4.2 规定，不在这里考
        got = break_even_tokens(list(eager), list(fused))
        if fused[1] >= eager[1]:
            assert got is None, f"eager={eager}, fused={fused}：期望 None，得到 {got!r}。重读 4.2。"
            continue
        want = max(0, (fused[0] - eager[0]) / (eager[1] - fused[1]))
        assert got is not None and abs(got - want) < 1e-9 * (1 + want), (
            f"eager={eager}, fused={fused}：期望 {want}，得到 {got!r}。重读 4.1、4.2。"
        )


hidden_test_break_even_random()
### END HIDDEN TESTS

# %% [markdown] slug="todo3-why" todo=3 tags=["instructor-only"]
# **讲解（TODO 3）** 次序要紧：先看斜率，再看起点。常见错误：
#
# 1. 用 `>` 判断斜率，平行时除以零；
# 2. 直接 `max(0, 公式)`：更陡的线会得到 0，好像一开始就划算；
# 3. 取整：194 和 193.9 不是一回事，函数返回的是交点；
# 4. 先看起点：`(5, 0.3)` 对 `(1, 0.4)` 会返回 0，而它在 T=40 之后一直更慢。
#
# 平行且起点不更高时，融合一直不更慢，但没有交点；按 4.2 规则 1 返回 `None`。测试不考这一格。

# %% 汇总 slug="summary" tags=["summary"]
def test_inf_operator_fusion():
    test_unfused_chain(), test_unfused_shared(), test_unfused_duplicate(), test_unfused_edges()
    test_fused_intermediate(), test_fused_external(), test_fused_escape(), test_fused_live_out(), test_fused_rest()
    test_break_even_formula(), test_break_even_none(), test_break_even_zero()
    print("✅ 第 2 章的可见测试全部通过：不融合的成本、融合后的成本、盈亏平衡点")


test_inf_operator_fusion()

# %% [markdown] slug="stop-here"
# ## 🛑 STOP HERE
#
# 先自己做完三个 TODO，跑过上面全部的测试，再往下看。卡住了，先看提示，再重读报错里写的那一节。
#
# 真的做不下去时，参考答案和讲解在这里：[教师版 notebook]({{blob:solutions/02_operator_fusion/02_operator_fusion.ipynb}})。
# 下面是可选实验，不影响得分。

# %% [markdown] slug="step-5"
# ## 第五步 可选实验：模型能预测它自己的实验吗（Optional experiment）
#
# 一个成本模型好不好，要看它**没见过**的点。做法：在一部分 token 数上拟合两条直线，用它们预测其余的，再和实测比。
#
# | 问题 | 固定什么 | 观察什么 |
# |---|---|---|
# | 结果对吗？ | 同样的输入，容差固定 | compiled 与 eager 的输出，两者对 float64 的误差 |
# | 时间是直线吗？ | $H$、dtype、单线程、先后随机 | 各个 $T$ 的中位数与两条直线的距离 |
# | $T^*$ 准吗？ | 只用拟合点算 $T^*$ | 没见过的点，预测与实测的加速比；少用一个拟合点，$T^*$ 移动多少 |
# | 跑的真是融合的 kernel 吗？ | 剖析的就是计时的那个函数 | kernel 的名字 |
#
# 下面是全系列共用的测量代码（第 1 章讲过 A/A 测试和噪声带），读懂大意即可。

# %% 共用：导入 slug="exp-imports" tags=["experiment"] include="assets/cells/exp_imports.py"

# %% 共用：统计量 slug="exp-statistics" tags=["experiment"] include="assets/cells/exp_statistics.py"

# %% 共用：区间、噪声带与判定 slug="exp-verdict" tags=["experiment"] include="assets/cells/exp_verdict.py"

# %% 共用：同步与线程 slug="exp-timing" tags=["experiment"] include="assets/cells/exp_timing.py"

# %% 共用：成对计时 slug="exp-pairs" tags=["experiment"] include="assets/cells/exp_pairs.py"

# %% 共用：配对比较 slug="exp-measure" tags=["experiment"] include="assets/cells/exp_measure.py"

# %% 共用：重新编译 slug="exp-compile" tags=["experiment"] include="assets/cells/exp_compile.py"

# %% 共用：kernel 证据 slug="exp-evidence" tags=["experiment"] include="assets/cells/exp_evidence.py"

# %% 共用：数值误差与显存 slug="exp-numerics" tags=["experiment"] include="assets/cells/exp_numerics.py"

# %% 共用：首次调用 slug="exp-shape" tags=["experiment"] include="assets/cells/exp_shape.py"

# %% 共用：一个形状的完整测量 slug="exp-row" tags=["experiment"] include="assets/cells/exp_row.py"

# %% 共用：决策 slug="exp-decide" tags=["experiment"] include="assets/cells/exp_decide.py"

# %% 共用：汇总 slug="exp-summary" tags=["experiment"] include="assets/cells/exp_summary.py"

# %% 共用：硬件说明 slug="exp-hardware" tags=["experiment"] include="assets/cells/exp_hardware.py"

# %% 共用：拼成结果 slug="exp-report" tags=["experiment"] include="assets/cells/exp_report.py"

# %% 共用：运行模式 slug="exp-mode" tags=["experiment"] include="assets/cells/exp_mode.py"

# %% 共用：安全地写文件 slug="exp-file" tags=["experiment"] include="assets/cells/exp_file.py"

# %% 共用：逐个形状测量 slug="exp-matrix" tags=["experiment"] include="assets/cells/exp_matrix.py"

# %% 共用：读结果 slug="exp-reader" tags=["reader"] include="assets/cells/exp_reader.py"

# %% 共用：画加速比 slug="exp-plot" tags=["plot"] include="assets/cells/exp_plot.py"

# %% [markdown] slug="step-5-settings"
# ### 5.1 设置（Settings）
#
# `RUN_MODE`：`'dry_run'`（默认，什么也不跑）、`'real_cpu'`、`'real_gpu'`。CPU 的结果写在 `…_cpu.json`。

# %% 设置 slug="settings" tags=["settings"]
RUN_MODE = "dry_run"  # 'dry_run' | 'real_cpu' | 'real_gpu'
RUN_LABEL = "default"
PROFILE_ID = "INF-CUDA-MECHANISM"
GPU_RESULT_PATH = f"benchmarks/results/inf_operator_fusion_{RUN_LABEL}.json"
HIDDEN_SIZE, DTYPE = 1024, "float32"
# 拟合点与检验点交错：检验点的数据不参与拟合
CALIBRATION = {"cpu": [1, 32, 96, 192, 320, 512], "cuda": [1, 1024, 4096, 8192, 16384]}
HELD_OUT = {"cpu": [16, 64, 128, 256, 384], "cuda": [256, 2048, 6144, 12288]}
WARMUP, REPEATS, ROUNDS, SEED = 10, 30, 4, 0
ATOL = RTOL = 1e-5

# %% [markdown] slug="step-5-run"
# ### 5.2 运行并保存（Run and save）

# %% 被测的函数 slug="workload" tags=["experiment"]
def silu_mul(g, u):
    """y = silu(g) * u。eager 是两次启动；Inductor 把它们合成一个 kernel。"""
    return torch.nn.functional.silu(g) * u


def make_case_on(device):
    """→ make_case(T) → (函数, 参数)。参数是 (T, H) 的 float32，由 SEED 决定。"""

    def make_case(token_count):
        generator = torch.Generator().manual_seed(SEED + token_count)
        shape, dtype = (token_count, HIDDEN_SIZE), getattr(torch, DTYPE)
        return silu_mul, tuple(torch.randn(shape, generator=generator).to(device, dtype) for _ in range(2))

    return make_case


# %% 拟合一条直线 slug="fit-line" tags=["experiment"]
def fit_line(points):
    """[(T, µs), …] → (a, b)，使相对误差的平方和最小：权重是 1/µs²，小 T 的点才不会被忽略。"""
    weights = [1 / us**2 for _, us in points]
    total = sum(weights)
    mean_t = sum(w * t for w, (t, _) in zip(weights, points)) / total
    mean_us = sum(w * us for w, (_, us) in zip(weights, points)) / total
    spread = sum(w * (t - mean_t) ** 2 for w, (t, _) in zip(weights, points))
    slope = sum(w * (t - mean_t) * (us - mean_us) for w, (t, us) in zip(weights, points)) / spread
    return mean_us - slope * mean_t, slope


# %% 两条直线，和 T* 的范围 slug="break-even-range" tags=["experiment"]
def fit_both(rows):
    """→ (eager 的直线, compiled 的直线)，由各行的中位数拟合，µs。"""
    return tuple(
        fit_line([(row["token_count"], row[path]["median_ms"] * 1e3) for row in rows]) for path in ("eager", "compiled")
    )


def break_even_range(fitted):
    """每次少用一个拟合点，T* 会在哪里 → [最小, 最大]；有一次没有交点，上端就是 None。"""
    values = [break_even_tokens(*fit_both([row for row in fitted if row is not left_out])) for left_out in fitted]
    found = [value for value in values if value is not None]
    return [min(found), max(found) if len(found) == len(values) else None] if found else [None, None]


# %% 成本模型 slug="cost-model" tags=["experiment"]
def cost_model(rows, calibration):
    """用拟合点求两条直线和 T*（由你的 TODO 3 计算），再预测没见过的各行。"""
    fitted = [row for row in rows if row["token_count"] in calibration]
    eager, compiled = fit_both(fitted)
    held_out = []
    for row in rows:
        if row not in fitted:
            eager_us, compiled_us = (fixed + slope * row["token_count"] for fixed, slope in (eager, compiled))
            predicted = {"token_count": row["token_count"], "predicted_speedup": eager_us / compiled_us}
            held_out.append(predicted | {"measured_speedup": row["speedup"]})
    return {
        "name": "two-lines/1",
        "calibration_token_counts": [row["token_count"] for row in fitted],
        "eager": {"fixed_us": eager[0], "us_per_token": eager[1]},
        "compiled": {"fixed_us": compiled[0], "us_per_token": compiled[1]},
        "break_even_tokens": break_even_tokens(eager, compiled),
        "break_even_range": break_even_range(fitted),
        "held_out": held_out,
    }


# %% 每个 token 的字节数 slug="traffic" tags=["experiment"]
def traffic_per_token():
    """由你的 TODO 1 和 TODO 2 数出每个 token 的字节数。"""
    ops = [{"in": ["g"], "out": "s"}, {"in": ["s", "u"], "out": "y"}]
    sizes = dict.fromkeys("gsuy", HIDDEN_SIZE * torch.finfo(getattr(torch, DTYPE)).bits // 8)
    return {
        "unfused_bytes_per_token": unfused_cost(ops, sizes)["bytes"],
        "fused_bytes_per_token": fused_cost(ops, [0, 1], sizes, ["y"])["bytes"],
    }


# %% 共用：先读第 1 章的预检 slug="exp-preflight" tags=["experiment"] include="assets/cells/exp_preflight.py"

# %% 测量、拟合、保存 slug="experiment" tags=["experiment"]
device = experiment_device(RUN_MODE, PROFILE_ID)
if device is None:
    print("dry_run：什么也没跑。把 5.1 的 RUN_MODE 改成 'real_cpu' 或 'real_gpu'，再运行 5.1 和 5.2。")
else:
    show_preflight()
    result_file = result_path(GPU_RESULT_PATH, device)
    check_label(result_file, RUN_LABEL)
    traffic = traffic_per_token()  # 先用到三个 TODO：没填完就在测量之前停下
    break_even_tokens((0, 2), (1, 1))
    plan = {
        "workload": "silu_mul", "semantic_id": "INF-OPERATOR-FUSION", "profile_id": PROFILE_ID, "run_label": RUN_LABEL,
        "device": device, "dtype": DTYPE, "token_counts": sorted(CALIBRATION[device] + HELD_OUT[device]),
        "hidden_size": HIDDEN_SIZE, "warmup": WARMUP, "repeats": REPEATS, "rounds": ROUNDS,
        "atol": ATOL, "rtol": RTOL, "seed": SEED,
    }
    rows, failures = run_matrix(make_case_on(device), plan)
    report = build_report(rows, failures, plan)
    enough = sum(row["token_count"] in CALIBRATION[device] for row in rows) >= 3
    report["cost_model"] = cost_model(rows, CALIBRATION[device]) | traffic if enough else None
    save_report(result_file, report)

# %% [markdown] slug="step-5-read"
# ### 5.3 读结果，画图（Read and plot）

# %% 读结果 slug="reader" tags=["reader"]
def print_cost_model(path):
    """打印成本模型，以及它对没见过的点的预测。"""
    report = load_report(path)
    model = report and report.get("cost_model")
    if not model:
        return
    for name in ("eager", "compiled"):
        print(f"{name}: {model[name]['fixed_us']:.2f} + {model[name]['us_per_token']:.3f} T µs")
    slopes = model["eager"]["us_per_token"] / model["compiled"]["us_per_token"]
    bytes_ratio = model["unfused_bytes_per_token"] / model["fused_bytes_per_token"]
    low, high = (None if end is None else round(end) for end in model["break_even_range"])
    print(f"T* = {model['break_even_tokens']}，少用一个拟合点时在 [{low}, {high}] 内")
    print(f"每个 token 的字节之比 {bytes_ratio:.2f}，斜率之比 {slopes:.2f}")
    for row in model["held_out"]:
        predicted, measured = row["predicted_speedup"], row["measured_speedup"]
        error = f"误差 {predicted / measured - 1:+.1%}"
        print(f"检验点 T={row['token_count']}: 预测 {predicted:.3f}x  实测 {measured:.3f}x  {error}")


print_report(newest_result(GPU_RESULT_PATH))
print_cost_model(newest_result(GPU_RESULT_PATH))

# %% 画两条直线 slug="plot-model" tags=["plot"]
MODEL_STYLES = {"eager": ("#b34700", "o", "-"), "compiled": ("#003f7f", "s", "--")}


def draw_model(axis, report):
    """左图：两条直线，拟合点（实心）和检验点（空心）。"""
    model, tokens = report["cost_model"], report["workload"]["token_counts"]
    for path, (color, marker, style) in MODEL_STYLES.items():
        line = [model[path]["fixed_us"] + model[path]["us_per_token"] * t for t in tokens]
        axis.plot(tokens, line, style, color=color, label=f"{path}: model")
        points = {"fitted": ([], []), "held out": ([], [])}
        for row in report["candidate_matrix"]:
            kind = "fitted" if row["token_count"] in model["calibration_token_counts"] else "held out"
            points[kind][0].append(row["token_count"])
            points[kind][1].append(row[path]["median_ms"] * 1e3)
        for kind, (ts, times) in points.items():
            fill = color if kind == "fitted" else "white"
            axis.plot(ts, times, marker, color=color, markerfacecolor=fill, label=f"{path}: {kind}")
    axis.set(xlabel="token count T", ylabel="time per call (µs)", title="Time per call: model and median")
    axis.legend(frameon=False, fontsize=8)


# %% 画预测的加速比和交点 slug="plot-prediction" tags=["plot"]
def draw_prediction(axis, model, last):
    """右图：模型预测的加速比，T = 1 … last。"""
    eager, fused = model["eager"], model["compiled"]
    tokens = range(1, last + 1)
    eager_us = [eager["fixed_us"] + eager["us_per_token"] * t for t in tokens]
    fused_us = [fused["fixed_us"] + fused["us_per_token"] * t for t in tokens]
    axis.plot(tokens, [e / f for e, f in zip(eager_us, fused_us)], "-.", color="#b34700", label="model")
    axis.legend(frameon=False, fontsize=8)


def draw_break_even(axes, model, last):
    """两个图里都标出 T*（点线）和它的范围（黄带）；没有交点就不画。"""
    if not model["break_even_tokens"]:
        return
    low, high = model["break_even_range"]
    for axis in axes:
        axis.axvline(model["break_even_tokens"], color="0.3", linestyle=":")
        axis.axvspan(low, high or last, color="#ffcc33", alpha=0.25, linewidth=0)
    axes[1].set_title(f"Speed-up; predicted break-even T* = {model['break_even_tokens']:.0f}")


# %% 画一份结果 slug="plot-function" tags=["plot"]
def plot_fusion(report, note=""):
    """左：模型与实测；右：预测的和实测的加速比，带 95% 区间和噪声带。只读数据，不测量。"""
    fig, axes = plt.subplots(1, 2, figsize=(11, 4.4), facecolor="white")
    model, last = report.get("cost_model"), report["workload"]["token_counts"][-1]
    draw_speedup(axes[1], report["candidate_matrix"], [])
    if model:
        draw_model(axes[0], report)
        draw_prediction(axes[1], model, last)
        draw_break_even(axes, model, last)
    hardware = report["hardware"]
    name = f"silu(g) * u, H={report['workload']['hidden_size']}"
    fig.suptitle(f"{note}{name}\n{hardware['device']}, torch {hardware['torch_version']}")
    fig.tight_layout()
    return fig


# %% 录好的样例 slug="plot-sample" tags=["plot"] sample="assets/samples/02_operator_fusion_cpu.json"
# 本课程在一台双核 CPU 上录的结果（去掉了逐次的样本）。没有你自己的文件时，图画的就是它。

# %% 画图 slug="plot" tags=["plot"]
saved = load_report(newest_result(GPU_RESULT_PATH))
if saved is None:
    print(f"没有找到 {newest_result(GPU_RESULT_PATH)}，下面画的是录好的样例，不是你的机器。")
figure = plot_fusion(saved or RECORDED_SAMPLE, "" if saved else "Recorded sample, not your machine. ")

# %% [markdown] slug="plot-caption"
# *图 4　左：两条拟合的直线；实心点参与拟合，空心点没有参与。右：点划线是模型预测的加速比，竖线是实测的 95% 区间，灰带是噪声带。竖的点线是 $T^*$，黄带是少用一个拟合点时 $T^*$ 的范围。*

# %% [markdown] slug="step-5-interpret"
# ### 5.4 解释与决定（Interpret and decide）
#
# | 结果 | 判断 | 下一步 |
# |---|---|---|
# | 检验点的误差大多小于噪声带 | 两条直线够用，$T^*$ 可以用来挑形状 | 只对 $T$ 明显大于 $T^*$ 的形状启用融合，在真实模型里重测 |
# | $T^*$ 的范围很宽，或上端是 `None` | 两条线几乎平行，交点不稳 | 别报一个数，报一个范围；多测几个点，或换一台安静的机器 |
# | 检验点系统地偏向一边 | 时间不是直线：多半是缓存装不下，或 kernel 换了 | 分段拟合，或把模型限制在拟合的范围之内 |
# | `verdict` 是 `tie` | 差别在噪声之内，离 $T^*$ 太近 | 保持 eager，少一份编译的麻烦 |
#
# **录好的样例怎么说。** 拟合点给出 $T^*$ = 194，少用一个拟合点时在 179 到 211 之间。实测 T=192 是 0.996 倍，T=256 是 1.071 倍，交点正落在这个范围里。
# 没见过的点：
#
# | T | 16 | 64 | 128 | 256 | 384 |
# |---|---|---|---|---|---|
# | 预测 | 0.350 | 0.706 | 0.901 | 1.056 | 1.122 |
# | 实测 | 0.331 | 0.692 | 0.904 | 1.071 | 1.135 |
# | 误差 | +5.8% | +1.9% | -0.3% | -1.4% | -1.1% |
#
# 误差最大的是最小的 T：那里一次调用才几微秒，固定开销占大头，直线最粗糙。可是离 $T^*$ 这么远，判断“更慢”仍然没错。
#
# **三个数要分开看。**
#
# 1. **字节之比** $5/3\approx1.67$ 是访存模型给的**上限**：假如时间全花在搬数据上，斜率就该差这么多；
# 2. **斜率之比**是实测的，比上限小：4.1 的两条线是 1.27，样例是 1.29。中间结果还在缓存里，读回来并不贵；`silu` 的指数也要时间，融合省不掉；
# 3. **固定开销之差**是融合要还的债。它除以斜率之差，就是 $T^*$。
#
# 换一台机器、换一个 dtype，这些数都会变。能带走的是方法：数一数字节，拟合两条线，用没见过的点检验。
#
# 剖析里看到 `cpp_fused_mul_silu` 这样的名字，说明计时的函数里确实有融合的 kernel；“能编译”本身证明不了这一点（{{chapter:07_execution_evidence|第 7 章}}）。

# %% [markdown] slug="questions"
# ## 思考题（Questions）
#
# 1. 把 $H$ 从 1024 改成 4096，两条线的 $a$ 和 $b$ 各怎样变？$T^*$ 呢？
# 2. `live_out` 漏写了一个张量，模型会高估还是低估融合的好处？程序的结果还对吗？
# 3. 线性层（GEMM）加偏置再加激活，融合的字节之比是多少？为什么它的加速通常比 `silu * up` 小？
# 4. 固定开销主要来自守卫检查。什么办法能减小它？（想想一次调用里放更多的算子。）
#
# <details><summary>思路</summary>
#
# 1. $a$ 几乎不变，$b$ 约变成 4 倍，$T^*$ 约变成四分之一：要紧的是 $T\cdot H$。
# 2. 高估。少写一次；而且真的不写的话，后面要用它的人读到的是错的。
# 3. 激活的读写省了，但 GEMM 的计算量大，时间不由这些字节决定；省下的比例就小了。
# 4. 把更大的一段交给编译器，一次守卫检查分摊到更多算子上；GPU 上还可以用 CUDA Graph。
# </details>

# %% [markdown] slug="mistakes"
# ## 常见误区（Common mistakes）
#
# | 误区 | 正确的说法 |
# |---|---|
# | “融合总是更快” | 固定开销可能更大；$T<T^*$ 时更慢 |
# | “启动少了，固定开销就小” | 这里启动从 2 次变 1 次，固定开销却从 1.40 µs 升到 15.36 µs |
# | “中间结果都省了” | 逃逸的和活跃的照样要写 |
# | “字节少了 40%，时间就少 40%” | 那是上限；缓存和计算都不在字节里 |
# | “拟合得好，预测就准” | 要用没参与拟合的点检验 |
# | “加速 1.01 倍，融合有效” | 落在噪声带里，只能说没有测出差别 |

# %% [markdown] slug="sources"
# ## 参考资料（Sources）
#
# 1. Ivanov 等，[Data Movement Is All You Need](https://arxiv.org/abs/2007.00072)：Transformer 里的逐元素与归一化算子受限于数据移动，融合能减少它。
# 2. Horace He，[Making Deep Learning Go Brrrr From First Principles](https://horace.io/brrr_intro.html)：计算、带宽与开销三种瓶颈。
# 3. PyTorch，[Reducing Guard Overhead](https://docs.pytorch.org/docs/2.14/user_guide/torch_compiler/compile/programming_model.reducing_guard_overhead.html)：每次调用编译过的函数都先检查守卫；函数本身很便宜时，这笔开销就看得出来。
# 4. 4.1 的四个数和 T=128、192、256 的加速比，是本课程在双核 CPU、torch 2.13 上测得的；结果文件的字段见[结果文件一览]({{blob:assets/experiments.md}})。
#
# **上一章**：{{chapter:01_preflight|第 1 章 环境预检}} ｜ **下一章**：{{chapter:03_flash_attention|第 3 章 FlashAttention 模拟}}
