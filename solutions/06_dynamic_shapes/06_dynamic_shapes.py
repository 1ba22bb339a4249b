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
# # INF-DYNAMIC-SHAPES. Guards, Recompiles and Buckets | 动态形状：守卫、重编译与分桶
#
# [![在 Colab 打开本章](https://colab.research.google.com/assets/colab-badge.svg)]({{colab}}) [![在 ModelScope 打开本章](https://img.shields.io/badge/Open%20in-ModelScope-624aff)]({{modelscope}})
#
# **难度**：Medium ｜ **环境**：CPU-first + 可选单卡 GPU ｜ **标签**：torch.compile、守卫、重编译、分桶 ｜ **预计用时**：90 分钟（第一步 10，三个 TODO 70，其余 10；第五步的实验另计）｜ 版本 {{version}}
#
# 线上请求的长度每次都不同。编译器喜欢固定的形状：形状一变，要么重新编译，要么换一份更通用的代码，要么干脆不编译。
# 本章先写一个模拟器，逐次说出 `torch.compile` 会怎么做，再用分桶（bucketing）把上百种长度变成几种。
#
# **学完本章，你能够**
#
# 1. 说清守卫（guard）、缓存条目（cache entry）、重编译（recompile）三者的关系；
# 2. 对任意一串长度，逐次预言 `torch.compile` 的动作，`auto`、`static`、`dynamic` 三种模式都行；
# 3. 给定桶的个数，求出填充最少的一组桶，并证明它最优；
# 4. 把编译时间算进去，判断哪种策略值得用、跑多少请求才回本。
#
# **先修**：{{chapter:04_execution_dispatch|第 4 章 推理融合与后端分派}}、{{chapter:05_graph_capture|第 5 章 图捕获}}。会 Python 的集合、字典和简单的动态规划就能做练习；第一至四步不需要 GPU，也不需要第三方包。
#
# **上一章**：{{chapter:05_graph_capture|第 5 章 图捕获}} ｜ **下一章**：{{chapter:07_execution_evidence|第 7 章 执行证据}}
#
# **怎样用这个 notebook**：从上到下读，从上到下运行。遇到 TODO，把 `raise NotImplementedError(...)` 那一行换成你的代码，再运行它后面的测试。

# %% [markdown] slug="step-1"
# ## 第一步 直觉：长度一变，代码还能用吗（Why shapes matter）
#
# `torch.compile` 第一次见到一段代码，会按当时的输入把它编译好，同时记下这份代码**在什么条件下有效**：dtype、设备、形状……这些条件叫**守卫**（guard）。守卫加代码，合起来是一个**缓存条目**（cache entry）。
#
# 以后每次调用，先拿输入去问各个条目的守卫：
#
# | 情形 | torch 的动作 | 代价 |
# |---|---|---|
# | 有一个条目的守卫通过 | 直接用它 | 很短的检查（微秒级） |
# | 都不通过，条目还不多 | 再编译一份，存成新条目 | 几百毫秒到几秒 |
# | 都不通过，条目已到上限 | 这一次不编译，按 eager 跑 | 编译的好处没有了，检查还得做 |
#
# 可以把它想成一家裁缝店：**静态**条目是照某个人的尺寸裁的衣服，只有他能穿；**动态**条目是均码，人人能穿，但不如定做的贴身；**分桶**是只做 S、M、L 几个号，穿的时候宁大勿小。
#
# 先看一批请求有多少种长度：

# %% 一批请求 slug="stream"
import random
from collections import Counter


def request_lengths(count=200, seed=0):
    """count 个请求的长度，长尾分布，可复现。"""
    rng = random.Random(seed)
    return [min(512, max(1, round(rng.lognormvariate(4.4, 0.7)))) for _ in range(count)]


stream = request_lengths()
distinct = sorted(set(stream))
print(f"{len(stream)} requests, {len(distinct)} distinct lengths, {distinct[0]} to {distinct[-1]}")
print("most common:", Counter(stream).most_common(5))

# %% [markdown] slug="step-1-read"
# 两百个请求里有一百多种长度，最常见的也只出现几次。每种长度编译一份显然不行。第二步先弄清 torch 到底会怎么做。

# %% [markdown] slug="step-2"
# ## 第二步 缓存模型：守卫、条目、上限（The cache model）
#
# 只看一个函数、一个会变的维度，大小是正整数 $n$。其余条件都不变，守卫就只剩“这个大小行不行”。
#
# ### 2.1 两种条目
#
# | 条目 | 守卫接受的大小 |
# |---|---|
# | 静态（static），为 $n_0$ 编译 | 只有 $n_0$ |
# | 动态（dynamic） | 一切 $n\ge 2$，**不含 1** |
#
# 为什么不含 1？大小为 1 的维度会广播（broadcast），连续性的判断也不同。torch 因此**总是为 0 和 1 单独编译**，叫 0/1 特化（zero-one specialization）<sup>[1]</sup>。本章的大小从 1 起。
#
# ### 2.2 三种模式
#
# | 模式 | `torch.compile` 的参数 | 需要新编译时编译成什么 |
# |---|---|---|
# | `static` | `dynamic=False` | 静态条目 |
# | `dynamic` | `dynamic=True` | 动态条目 |
# | `auto` | `dynamic=None`（默认） | 第一份静态；以后再要编译，说明大小变了，就编译成动态 |
#
# 无论哪种模式，$n=1$ 需要新编译时都得到一个只接受 1 的条目。
#
# ### 2.3 上限
#
# 同一段代码最多存 `recompile_limit` 个条目，默认 8<sup>[2]</sup>。到了上限：
#
# - **已有的条目照常命中**；
# - 没有条目接受的大小**按 eager 跑**，不再编译，也不挤掉旧条目。程序不报错，只在日志里留一行警告。
#
# ![同一串大小 5、5、7、1、9、8、5、7，三种模式各一行，每一格写着 torch 的动作：新编译、命中，或退回 eager]({{raw:assets/figures/06_cache.png}})
#
# *图 1　同一串大小，上限取 3，三种模式的动作。`static` 很快用完名额，后面的新大小全部退回 eager；`auto` 第二种大小起就换成动态。*

# %% [markdown] slug="step-2-rules"
# ### 2.4 一次调用的完整规则
#
# 大小为 $n$ 的一次调用，按这个次序判断，得到一个**事件**（event）：
#
# | 次序 | 条件 | 事件 | 缓存的变化 |
# |---|---|---|---|
# | 1 | 有条目的守卫接受 $n$ | `hit` | 无 |
# | 2 | 条目数已达 `limit` | `eager_limit` | 无 |
# | 3 | $n=1$（任何模式） | `new_one` | 多一个只接受 1 的条目 |
# | 4 | 模式是 `static`；或模式是 `auto` 而缓存是空的 | `new_static` | 多一个只接受 $n$ 的条目 |
# | 5 | 其余（`dynamic`；`auto` 而缓存不空） | `new_dynamic` | 多一个动态条目 |
#
# 手推一遍，`auto`，上限 8：
#
# | 大小 | 5 | 5 | 7 | 9 | 1 | 5 | 1 |
# |---|---|---|---|---|---|---|---|
# | 事件 | `new_static` | `hit` | `new_dynamic` | `hit` | `new_one` | `hit` | `hit` |
#
# 注意第四次：7 触发的动态条目也接受 9。第六次的 5 命中的是静态条目还是动态条目，从事件上看不出来，也不影响结果。
#
# 再推一个容易错的：`auto`，先来 1。大小 1、5、7 依次是 `new_one`、`new_dynamic`、`hit`。缓存里已有一个条目（只接受 1 的那个），5 就不再是“第一份”。

# %% [markdown] slug="todo1-task"
# ### TODO 1　实现 `simulate_dynamo_cache`
#
# 用时 30 分钟 ｜ 难度 ●●○ ｜ 要写的：函数体，约 15 行
#
# | 输入 | 含义 |
# |---|---|
# | `sizes` | 一串正整数，依次是每次调用的大小 |
# | `mode` | `'auto'`、`'static'` 或 `'dynamic'`；别的值抛 `ValueError` |
# | `limit` | 条目数的上限，默认 8，至少是 1 |
#
# 返回事件名（字符串）的列表，一次调用一项，按 2.4 的规则。`sizes` 为空时返回 `[]`。不修改输入，每次调用都从空缓存开始。
#
# <details><summary>提示 1：要记住什么？</summary>
#
# 一个集合放静态条目的大小（只接受 1 的那个也放进去），一个布尔值记有没有动态条目。条目数 = 集合的大小 + 布尔值。
# </details>
#
# <details><summary>提示 2：次序</summary>
#
# 先问命中，再问上限，最后才决定编译成什么。次序反了，到上限以后旧条目就不会命中。
# </details>
#
# <details><summary>提示 3：大小 1</summary>
#
# 动态条目不接受 1，所以命中的条件要写成“静态集合里有 n，或者有动态条目而且 n 不是 1”。
# </details>

# %% 模拟 dynamo 的缓存 slug="todo1" todo=1 stub="请先完成 TODO 1：simulate_dynamo_cache 还没有实现" nbgrader={"grade": false, "grade_id": "todo1", "locked": false, "schema_version": 3, "solution": true, "task": false}
def simulate_dynamo_cache(sizes, mode, limit=8):
    """一串大小 → 每次调用的事件：new_static、new_dynamic、new_one、hit 或 eager_limit。"""
    # TODO 1：记住已有的条目，按 2.4 的次序逐次判断
    ### BEGIN SOLUTION
    if mode not in ("auto", "static", "dynamic"):
        raise ValueError(f"mode={mode!r} 不认识，可选：auto、static、dynamic")
    static_sizes, has_dynamic, events = set(), False, []
    for n in sizes:
        entries = len(static_sizes) + has_dynamic
        if n in static_sizes or (has_dynamic and n != 1):
            events.append("hit")
        elif entries >= limit:
            events.append("eager_limit")
        elif n == 1:
            static_sizes.add(1)
            events.append("new_one")
        elif mode == "static" or (mode == "auto" and entries == 0):
            static_sizes.add(n)
            events.append("new_static")
        else:
            has_dynamic = True
            events.append("new_dynamic")
    return events
    ### END SOLUTION


# %% [markdown] slug="todo1-tests"
# **TODO 1 的测试。** 每一格检查一种行为，各有各的分。报错时看四行：应得、实得、可能的原因、请重读哪里。

# %% TODO 1：每次调用一个事件名 slug="todo1-events" todo=1 step="TODO 1 的说明" nbgrader={"grade": true, "grade_id": "todo1_events", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
def complain(what, want, got, cause, step):
    """一条报错：测的是什么、应得、实得、可能的原因、请重读哪一步。"""
    return f"{what}\n  应得：{want}\n  实得：{got}\n  可能的原因：{cause}\n  请重读：{step}"


def check_events(sizes, mode, want, cause, step, **limit):
    """simulate_dynamo_cache(sizes, mode, **limit) 与 want（空格隔开的事件名）逐项比较。"""
    want, got = want.split(), simulate_dynamo_cache(list(sizes), mode, **limit)
    what = f"sizes={list(sizes)}, mode={mode!r}" + "".join(f", limit={n}" for n in limit.values())
    if not isinstance(got, (list, tuple)):
        cause, step = "应返回事件名的列表；实得 None 时，多半是忘了 return", "TODO 1 的说明"
    elif len(got) == len(want) and list(got) != want:
        at = next(i for i in range(len(want)) if got[i] != want[i])
        what = f"{what}\n  第一处不同：第 {at + 1} 次调用，大小 {sizes[at]}，应是 {want[at]!r}，得到 {got[at]!r}"
    assert isinstance(got, (list, tuple)) and list(got) == want, complain(what, want, got, cause, step)


def test_event_list():
    step = "TODO 1 的说明"
    for mode in ("auto", "static", "dynamic"):
        check_events([], mode, "", "没有调用就没有事件，应返回 []", step)
    sizes = [5, 5]
    first = simulate_dynamo_cache(sizes, "static")
    again = simulate_dynamo_cache(sizes, "static")
    assert first == again, complain("同样的输入再来一次", first, again, "缓存没有从空的开始（状态放在了函数外面）", step)
    assert sizes == [5, 5], complain("输入 sizes", [5, 5], sizes, "修改了输入", step)
    check_events([5, 5], "static", "new_static hit", "每次调用都要有一个事件，命中也算", step)


test_event_list()

# %% TODO 1：static 模式 slug="todo1-static" todo=1 step="2.2 三种模式" nbgrader={"grade": true, "grade_id": "todo1_static", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
def test_static():
    cause = "static 模式每种新大小各编译一份静态条目；以前的条目一直在，不只是最近一份"
    check_events([5, 7, 5, 7, 9, 5], "static", "new_static new_static hit hit new_static hit", cause, "2.2 三种模式")
    check_events([2, 3, 2], "static", "new_static new_static hit", cause, "2.2 三种模式")


test_static()

# %% TODO 1：dynamic 模式 slug="todo1-dynamic" todo=1 step="2.2 三种模式" nbgrader={"grade": true, "grade_id": "todo1_dynamic", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
def test_dynamic():
    cause = "dynamic 模式第一份就是动态条目，接受一切大于 1 的大小"
    check_events([5, 7, 9, 2, 5], "dynamic", "new_dynamic hit hit hit hit", cause, "2.2 三种模式")


test_dynamic()

# %% TODO 1：auto 模式 slug="todo1-auto" todo=1 step="2.4 一次调用的完整规则" nbgrader={"grade": true, "grade_id": "todo1_auto", "locked": true, "points": 8, "schema_version": 3, "solution": false, "task": false}
def test_auto():
    step = "2.4 一次调用的完整规则"
    cause = "auto 模式第一份静态，第二次需要编译时就换成动态"
    check_events([5, 5, 7, 9], "auto", "new_static hit new_dynamic hit", cause, step)
    cause = "静态条目还在，旧的大小仍然命中"
    check_events([5, 7, 5, 3, 5], "auto", "new_static new_dynamic hit hit hit", cause, step)
    cause = "大小没有变就不会重编译：全部命中第一份"
    check_events([6, 6, 6], "auto", "new_static hit hit", cause, step)


test_auto()

# %% TODO 1：大小 1 slug="todo1-one" todo=1 step="2.1 两种条目" nbgrader={"grade": true, "grade_id": "todo1_one", "locked": true, "points": 7, "schema_version": 3, "solution": false, "task": false}
def test_size_one():
    cause = "动态条目不接受 1；任何模式下，1 都单独编译一次，以后命中"
    check_events([5, 1, 1, 9], "dynamic", "new_dynamic new_one hit hit", cause, "2.1 两种条目")
    check_events([1, 1], "static", "new_one hit", "1 的事件在任何模式下都叫 new_one", "2.4 一次调用的完整规则")
    check_events([5, 7, 1, 1], "auto", "new_static new_dynamic new_one hit", cause, "2.1 两种条目")
    cause = "缓存里已有 1 的条目，5 就不是第一份，auto 直接编译成动态"
    check_events([1, 5, 7], "auto", "new_one new_dynamic hit", cause, "2.4 一次调用的完整规则")
    cause = "1 占了一个条目，但它不是动态条目：7 仍要编译一次动态"
    check_events([5, 1, 7, 9], "auto", "new_static new_one new_dynamic hit", cause, "2.4 一次调用的完整规则")
    check_events([1, 6, 1], "dynamic", "new_one new_dynamic hit", "只接受 1 的条目不接受 6", "2.1 两种条目")


test_size_one()

# %% TODO 1：到了上限 slug="todo1-limit" todo=1 step="2.3 上限" nbgrader={"grade": true, "grade_id": "todo1_limit", "locked": true, "points": 8, "schema_version": 3, "solution": false, "task": false}
def test_limit():
    cause = "到上限后旧条目照常命中，新大小走 eager；不编译，也不挤掉旧条目"
    want = "new_static new_static eager_limit hit hit eager_limit eager_limit"
    check_events([5, 6, 7, 5, 6, 7, 8], "static", want, cause, "2.3 上限", limit=2)
    want = "new_static " * 8 + "eager_limit eager_limit hit hit"
    check_events([*range(2, 12), 2, 9], "static", want, "默认的上限是 8 个条目：第 9 种大小才走 eager", "2.3 上限")
    cause = "动态条目也占一个名额；1 也占一个"
    want = "new_static new_dynamic eager_limit hit eager_limit hit"
    check_events([5, 6, 1, 7, 1, 5], "auto", want, cause, "2.3 上限", limit=2)
    check_events([5, 5, 5, 6, 7], "static", "new_static hit hit new_static eager_limit", "占名额的是条目，不是调用", "2.3 上限", limit=2)
    cause = "上限是 1 时，auto 永远没有机会变成动态"
    check_events([5, 6, 5, 7], "auto", "new_static eager_limit hit eager_limit", cause, "2.3 上限", limit=1)


test_limit()

# %% TODO 1：不认识的模式 slug="todo1-mode" todo=1 step="TODO 1 的说明" nbgrader={"grade": true, "grade_id": "todo1_mode", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
def test_unknown_mode():
    for mode in ("automatic", None):
        try:
            got = simulate_dynamo_cache([5], mode)
        except ValueError:
            continue
        cause = "没有检查 mode；写错的模式名会悄悄当成别的模式"
        raise AssertionError(complain(f"mode={mode!r}", "ValueError", got, cause, "TODO 1 的说明"))


test_unknown_mode()

# %% TODO 1：与 torch 的记录逐次比较 slug="todo1-hidden" todo=1 step="2.4 一次调用的完整规则" nbgrader={"grade": true, "grade_id": "todo1_hidden", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
# 隐藏测试：几串在 torch 2.13 上真实录下的事件
### BEGIN HIDDEN TESTS
def test_recorded_events():
    recorded = [
        ([3, 1, 3, 8, 1, 2], "auto", 8, "new_static new_one hit new_dynamic hit hit"),
        ([1, 1, 2, 3, 2], "auto", 2, "new_one hit new_dynamic hit hit"),
        ([9, 1, 8, 9, 1, 7], "auto", 2, "new_static new_one eager_limit hit hit eager_limit"),
        ([1, 6, 1, 7, 5], "dynamic", 1, "new_one eager_limit hit eager_limit eager_limit"),
        ([4, 1, 6, 1], "dynamic", 1, "new_dynamic eager_limit hit eager_limit"),
        ([1, 6, 1, 7, 6, 5], "static", 2, "new_one new_static hit eager_limit hit eager_limit"),
        ([8, 8, 2, 3, 2, 1, 3], "static", 3, "new_static hit new_static new_static hit eager_limit hit"),
    ]
    for sizes, mode, limit, want in recorded:
        check_events(sizes, mode, want, "与录下的不同", "2.4", limit=limit)


test_recorded_events()
### END HIDDEN TESTS

# %% [markdown] slug="todo1-why" todo=1 tags=["instructor-only"]
# **TODO 1 讲解。** 状态只有两样：静态条目的集合、有没有动态条目。
#
# - `elif` 的次序就是 2.4 表的次序；把“命中”放在“上限”之前最要紧。
# - `has_dynamic` 是布尔值，Python 里能直接相加，得到条目数。
# - 动态条目最多一个：它接受一切 $n\ge 2$，不会再编译第二份。所以 `dynamic` 模式最多 2 个条目，`auto` 最多 3 个（一静、一动、一个 1），碰不到默认的上限。
# - 这是一维的模型。真实的守卫还有别的条件：dtype、设备、梯度模式、第二个维度……每一样都可能引起重编译。
# - 隐藏测试里的事件录自 torch 2.13（`aot_eager`）；`grader/tests/test_chapter_06.py` 每次都重新录一遍，逐项比较。

# %% [markdown] slug="step-3"
# ## 第三步 分桶（Bucketing）
#
# ### 3.1 用填充换种类
#
# 事先选好几个长度 $b_1<b_2<\dots<b_k$，叫**桶**（bucket）。每个请求补零到**装得下它的最小的桶**，于是形状只剩 $k$ 种，静态编译 $k$ 份就够。vLLM 的 Gaudi 后端就这样做：启动时对每个桶跑一遍，把图先编译好<sup>[3]</sup>。
#
# 代价是**填充**（padding）：长度为 $\ell$ 的请求放进桶 $b$，多算 $b-\ell$ 个位置。桶多，填充少，但编译次数多；桶少则相反。
#
# 问题：最多用 $k$ 个桶，怎样选，总填充最少？
#
# $$\min_{b_1<\dots<b_j,\ j\le k}\ \sum_{\ell}\Bigl(\min_{b_i\ge \ell} b_i-\ell\Bigr)$$
#
# 求和对**每个请求**，同样的长度出现几次就算几次。
#
# ![两幅图：200 个请求按长度排好，四个桶画成台阶，台阶与长度之间的阴影是填充；上图等宽，填充 54%，下图最优，填充 37%]({{raw:assets/figures/06_buckets.png}})
#
# *图 2　200 个请求按长度排好，台阶是 4 个桶，阴影是填充。上：等宽的桶；下：填充最少的桶，在请求密集的地方更细。*

# %% [markdown] slug="step-3-2"
# ### 3.2 两个观察
#
# **桶只需取出现过的长度。** 假如某个桶 $b$ 不等于任何请求的长度，把它缩到“分给它的请求里最长的那个”，装得下的请求不变，填充只减不增。所以候选只有各个不同的长度。最大的桶必须等于最大的长度，否则有请求装不下。
#
# **直觉的办法不是最优。** 取长度 1（六次）、9、10、20，$k=2$：
#
# | 办法 | 桶 | 总填充 |
# |---|---|---|
# | 等宽（每 10 一档） | 10, 20 | $6\times 9+1=55$ |
# | 等频（每桶一半请求） | 1, 20 | $11+10=21$ |
#
# 这里等频碰巧最优；换成长度 1、2、3、4、50、60，$k=2$，等频的桶是 3、60，总填充 $2+1+56+10=69$；最优的是 4、60，$3+2+1+10=16$。

# %% [markdown] slug="step-3-3"
# ### 3.3 动态规划
#
# 不同的长度升序排列：$u_1<\dots<u_m$，出现次数 $c_1,\dots,c_m$。最优解里，每个桶管**连续的一段**。第 $i$ 到第 $j$ 个长度共用桶 $u_j$ 时，填充是
#
# $$w(i,j)=\sum_{t=i}^{j}c_t\,(u_j-u_t)$$
#
# 设 $f_b(j)$ 是前 $j$ 个长度恰好用 $b$ 个桶时的最少填充，最后一个桶管 $i+1,\dots,j$：
#
# $$f_1(j)=w(1,j),\qquad f_b(j)=\min_{b-1\le i<j}\ \bigl[f_{b-1}(i)+w(i+1,j)\bigr]$$
#
# 答案取 $f_1(m),\dots,f_k(m)$ 中最小的；**填充相同取桶少的**：一个桶要多编译一份代码，没有好处就不要它。

# %% 用动态规划手算一个 slug="dp-example"
lengths, u = [1, 2, 3, 4, 50, 60], [1, 2, 3, 4, 50, 60]


def waste(i, j):
    """第 i 到第 j 个长度（从 0 数）共用桶 u[j] 时的填充。"""
    return sum(u[j] - n for n in u[i : j + 1])


for i in range(5):
    print(f"buckets {u[i]:>2} and 60: padding {waste(0, i):>2} + {waste(i + 1, 5):>3} = {waste(0, i) + waste(i + 1, 5)}")

# %% [markdown] slug="todo2-task"
# ### TODO 2　实现 `choose_buckets`
#
# 用时 30 分钟 ｜ 难度 ●●● ｜ 要写的：函数体，约 15 行
#
# | 输入 | 含义 |
# |---|---|
# | `lengths` | 请求长度的列表，正整数，可重复，不一定有序 |
# | `k` | 最多几个桶；`k < 1` 抛 `ValueError` |
#
# 返回桶的列表，升序，每个桶都是出现过的长度，总填充最少；填充相同取桶少的；填充和个数都相同时，哪一组都算对。`lengths` 为空时返回 `[]`。不修改输入。
#
# 穷举所有组合也能得到正确答案，测试的规模不大，允许。但先想想 131 种长度、4 个桶有多少种组合。
#
# <details><summary>提示 1：先压缩</summary>
#
# `Counter(lengths)` 给出每个长度的次数，`sorted` 它的键就是 $u$。
# </details>
#
# <details><summary>提示 2：连桶一起记</summary>
#
# 表里每一格存一对 `(填充, 桶的列表)`。Python 比较元组先比第一项，`min` 直接可用。
# </details>
#
# <details><summary>提示 3：一层一层来</summary>
#
# 从 $f_1$ 算到 $f_{\min(k,m)}$，每层的最后一格是一个候选答案；最后按 `(填充, 桶数)` 取最小。
# </details>

# %% 填充最少的桶 slug="todo2" todo=2 stub="请先完成 TODO 2：choose_buckets 还没有实现" nbgrader={"grade": false, "grade_id": "todo2", "locked": false, "schema_version": 3, "solution": true, "task": false}
def choose_buckets(lengths, k):
    """最多 k 个桶，总填充最少 → 升序的桶；填充相同取桶少的。lengths 为空返回 []，k < 1 抛 ValueError。"""
    # TODO 2：压缩成不同的长度，按 3.3 的递推逐层求最少填充
    ### BEGIN SOLUTION
    if k < 1:
        raise ValueError(f"至少要 1 个桶，得到 k={k}")
    times = Counter(lengths)
    u = sorted(times)
    if not u:
        return []
    m = len(u)
    w = [[0] * m for _ in range(m)]  # w[i][j]：第 i..j 个长度共用桶 u[j] 的填充
    for i in range(m):
        seen = 0  # 第 i..j-1 个长度一共多少个请求
        for j in range(i + 1, m):
            seen += times[u[j - 1]]
            w[i][j] = w[i][j - 1] + seen * (u[j] - u[j - 1])
    layer = [(w[0][j], [u[j]]) for j in range(m)]  # 恰好一个桶
    answer = layer[-1]
    for used in range(1, min(k, m)):
        previous = layer
        layer = [None] * used  # 不到 used + 1 个长度，用不了这么多桶
        for j in range(used, m):
            layer.append(min((previous[i][0] + w[i + 1][j], previous[i][1] + [u[j]]) for i in range(used - 1, j)))
        if layer[-1][0] < answer[0]:  # 严格更少才多用一个桶
            answer = layer[-1]
    return answer[1]
    ### END SOLUTION


# %% [markdown] slug="todo2-tests"
# **TODO 2 的测试。** 最优与否由测试里的穷举来判，不看你用什么方法。

# %% TODO 2：返回值的样子 slug="todo2-shape" todo=2 step="TODO 2 的说明" nbgrader={"grade": true, "grade_id": "todo2_shape", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
def total_padding(lengths, buckets):
    """每个请求补到装得下它的最小的桶，总共补多少；有请求装不下时是无穷大。"""
    return sum(min([b for b in buckets if b >= n], default=float("inf")) - n for n in lengths)


def checked_buckets(lengths, k):
    """choose_buckets 的结果；先检查它是一组合法的桶。"""
    given = list(lengths)
    got, what, step = choose_buckets(given, k), f"lengths={lengths}, k={k}", "TODO 2 的说明"
    kind = type(got).__name__
    assert isinstance(got, (list, tuple)), complain(what, "列表", kind, "应返回桶的列表", step)
    got = list(got)
    cause = "桶要升序、不重复"
    assert got == sorted(set(got)), complain(what, sorted(set(got)), got, cause, step)
    assert len(got) <= k, complain(what, f"最多 {k} 个桶", f"{len(got)} 个：{got}", "k 是桶数的上限", step)
    strange = [b for b in got if b not in lengths]
    assert not strange, complain(what, "每个桶都是出现过的长度", f"{strange} 没有出现过", "候选只取出现过的长度", "3.2 两个观察")
    largest = max(lengths, default=None)
    cause = "最大的桶必须等于最大的长度，否则有请求装不下"
    assert not lengths or got[-1:] == [largest], complain(what, f"最后一个桶是 {largest}", got, cause, "3.2 两个观察")
    assert given == list(lengths), complain(what, "输入不变", given, "排序用 sorted，不要用 lengths.sort()", step)
    return got


def test_bucket_list():
    for lengths, k in (([7, 3, 7, 5], 2), ([4], 3), ([9, 2, 9, 2, 30], 1)):
        checked_buckets(lengths, k)


test_bucket_list()

# %% TODO 2：小例子 slug="todo2-small" todo=2 step="3.3 动态规划" nbgrader={"grade": true, "grade_id": "todo2_small", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
def check_optimal(lengths, k, want, cause, step="3.3 动态规划"):
    """桶合法，而且总填充等于 want 的总填充、个数不多于 want。"""
    got, best = checked_buckets(lengths, k), total_padding(lengths, want)
    what, padding = f"lengths={lengths}, k={k}", total_padding(lengths, got)
    assert padding == best, complain(what, f"填充 {best}，例如 {want}", f"填充 {padding}：{got}", cause, step)
    assert len(got) == len(want), complain(what, f"{len(want)} 个桶，例如 {want}", got, "填充相同取桶少的", step)


def test_small_buckets():
    check_optimal([1, 2, 3, 4, 50, 60], 2, [4, 60], "没有求最少的总填充（等频、等宽都不是最优）")
    check_optimal([1, 2, 3, 4, 50, 60], 1, [60], "k=1 时只有一个选择：最大的长度")
    check_optimal([60, 50, 4, 3, 2, 1], 3, [4, 50, 60], "lengths 不一定有序；k=3 时三个桶都有用")
    check_optimal([10, 20, 30], 2, [10, 30], "填充都是 10，[10, 30] 与 [20, 30] 都算对")


test_small_buckets()

# %% TODO 2：同样的长度出现几次算几次 slug="todo2-counts" todo=2 step="3.1 用填充换种类" nbgrader={"grade": true, "grade_id": "todo2_counts", "locked": true, "points": 7, "schema_version": 3, "solution": false, "task": false}
def test_repeated_lengths():
    cause = "求和要对每个请求，不是对每种长度：出现十次的长度，填充也要算十次"
    check_optimal([10] * 10 + [20, 26], 2, [10, 26], cause, "3.1 用填充换种类")
    check_optimal([1] * 6 + [9, 10, 20], 2, [1, 20], cause, "3.1 用填充换种类")
    check_optimal([3] + [4] * 9 + [8] * 5 + [9], 2, [4, 9], cause, "3.1 用填充换种类")
    check_optimal([1, 2] + [5] * 20 + [6, 7], 2, [5, 7], cause, "3.1 用填充换种类")


test_repeated_lengths()

# %% TODO 2：与穷举一样好 slug="todo2-optimal" todo=2 step="3.3 动态规划" nbgrader={"grade": true, "grade_id": "todo2_optimal", "locked": true, "points": 9, "schema_version": 3, "solution": false, "task": false}
import itertools


def brute_force(lengths, k):
    """穷举所有合法的桶，取（填充，桶数）最小的一组。"""
    sizes = sorted(set(lengths))
    groups = (g for n in range(1, k + 1) for g in itertools.combinations(sizes, n) if g[-1] == sizes[-1])
    return list(min(groups, key=lambda g: (total_padding(lengths, g), len(g))))


def test_optimal():
    cause = "不是最优：贪心（每次加一个或去掉一个桶）、等宽、等频都会在某些数据上输给动态规划"
    cases = [([2, 3, 7, 12, 15, 18], 3), ([2, 9, 13, 18, 19, 24], 3), ([1, 3, 6, 9, 13, 22], 3)]
    cases += [([1, 2, 4, 8, 16, 32, 64], 4), ([5, 6, 7, 8, 9, 10, 11, 12], 4), ([10, 11, 12, 30, 31, 32, 70], 2)]
    for lengths, k in cases:
        check_optimal(lengths, k, brute_force(lengths, k), cause)


test_optimal()

# %% TODO 2：不要多余的桶 slug="todo2-fewer" todo=2 step="3.3 动态规划" nbgrader={"grade": true, "grade_id": "todo2_fewer", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
def test_no_useless_buckets():
    cause = "桶数是上限，不必用满：不同的长度只有这么多，再多的桶没有请求用"
    check_optimal([4, 4, 4], 3, [4], cause)
    check_optimal([9, 2, 9, 2], 5, [2, 9], cause)
    check_optimal([3, 1, 2], 3, [1, 2, 3], "k 等于长度的种类数时，每种长度一个桶，填充是 0")


test_no_useless_buckets()

# %% TODO 2：空列表与 k < 1 slug="todo2-edge" todo=2 step="TODO 2 的说明" nbgrader={"grade": true, "grade_id": "todo2_edge", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
def test_bucket_edges():
    step = "TODO 2 的说明"
    got = choose_buckets([], 3)
    assert isinstance(got, (list, tuple)) and list(got) == [], complain("lengths=[]", [], got, "没有请求就没有桶", step)
    for k in (0, -1):
        try:
            got = choose_buckets([3, 5], k)
        except ValueError:
            continue
        raise AssertionError(complain(f"k={k}", "ValueError", got, "没有检查 k；0 个桶装不下任何请求", step))


test_bucket_edges()

# %% TODO 2：许多随机数据 slug="todo2-hidden" todo=2 step="3.3 动态规划" nbgrader={"grade": true, "grade_id": "todo2_hidden", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
# 隐藏测试：随机的长度与桶数，与穷举比较
### BEGIN HIDDEN TESTS
import random


def test_random_buckets():
    rng = random.Random(6)
    for _ in range(60):
        lengths = [rng.choice((1, 2, 3, 5, 9, 17, 18, 30, 64, 65, 100)) for _ in range(rng.randint(1, 14))]
        k = rng.randint(1, 6)
        check_optimal(lengths, k, brute_force(lengths, k), "不是最优")


test_random_buckets()
### END HIDDEN TESTS

# %% [markdown] slug="todo2-why" todo=2 tags=["instructor-only"]
# **TODO 2 讲解。** 这是一维的分段问题，与“把排好序的数据分成 $k$ 段”同类。
#
# - $w(i,j)$ 递推着算：段尾从 $u_{j-1}$ 移到 $u_j$，段里原有的每个请求都多补 $u_j-u_{j-1}$。整张表 $O(m^2)$。
# - 逐层 $O(k m^2)$；131 种长度、4 个桶约 3 万步。穷举要试 $\binom{130}{3}=357760$ 组，每组还要过一遍 200 个请求。
# - 只要还有一种长度没有自己的桶，多加一个桶就严格减少填充。所以“填充相同取桶少的”只在 $k>m$ 时起作用：用 $m$ 个。
# - 贪心的反例：$[2,3,7,12,15,18]$，$k=3$。从 $\{18\}$ 起每次加一个最好的桶，得到 $[3,7,18]$，填充 10；从全部长度起每次去掉一个，也是 10。最优的 $[3,12,18]$ 只填 9。

# %% [markdown] slug="step-4"
# ## 第四步 运行时选桶（Picking a bucket at run time）
#
# ### 4.1 规则
#
# 桶选好以后，每来一个请求都要问一次：放哪个桶？规则很短：
#
# - **装得下它的最小的桶**：$b\ge\ell$ 中最小的，相等也算装得下；
# - 都装不下：返回 `None`，由调用者决定怎么办（走动态编译、走 eager，或者拒绝）。**不要**悄悄放进最大的桶：那会截断请求。
#
# 桶表可能来自配置文件，**不保证有序**。

# %% [markdown] slug="todo3-task"
# ### TODO 3　实现 `bucket_for`
#
# 用时 10 分钟 ｜ 难度 ●○○ ｜ 要写的：函数体，一两行
#
# `bucket_for(length, buckets)` → 装得下 `length` 的最小的桶；没有就是 `None`。`buckets` 可能无序，可能为空；不修改它。
#
# <details><summary>提示</summary>
#
# 先筛出装得下的，再取最小。`min` 有一个 `default` 参数，专门应付空的情形。
# </details>

# %% 选桶 slug="todo3" todo=3 stub="请先完成 TODO 3：bucket_for 还没有实现" nbgrader={"grade": false, "grade_id": "todo3", "locked": false, "schema_version": 3, "solution": true, "task": false}
def bucket_for(length, buckets):
    """装得下 length 的最小的桶；都装不下返回 None。"""
    # TODO 3：筛选，取最小
    ### BEGIN SOLUTION
    return min((b for b in buckets if b >= length), default=None)
    ### END SOLUTION


# %% [markdown] slug="todo3-tests"
# **TODO 3 的测试。**

# %% TODO 3：装得下的最小的桶 slug="todo3-smallest" todo=3 step="第四步 运行时选桶" nbgrader={"grade": true, "grade_id": "todo3_smallest", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
def check_bucket(length, buckets, want, cause):
    """bucket_for(length, buckets) 应是 want，而且 buckets 不变。"""
    given = list(buckets)
    got, step = bucket_for(length, given), "第四步 运行时选桶"
    what = f"length={length}, buckets={buckets}"
    assert got == want and (got is None) == (want is None), complain(what, repr(want), repr(got), cause, step)
    assert given == list(buckets), complain(what, "buckets 不变", given, "排序用 sorted，不要用 buckets.sort()", step)


def test_smallest_bucket():
    for length, want in ((1, 16), (15, 16), (17, 64), (63, 64), (65, 256), (200, 256)):
        check_bucket(length, [16, 64, 256], want, "应是装得下的桶里最小的，不是最近的，也不是最大的")


test_smallest_bucket()

# %% TODO 3：正好装满 slug="todo3-exact" todo=3 step="第四步 运行时选桶" nbgrader={"grade": true, "grade_id": "todo3_exact", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
def test_exact_fit():
    for length in (16, 64, 256):
        check_bucket(length, [16, 64, 256], length, "相等也算装得下：条件是 b >= length")


test_exact_fit()

# %% TODO 3：都装不下 slug="todo3-none" todo=3 step="第四步 运行时选桶" nbgrader={"grade": true, "grade_id": "todo3_none", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
def test_no_bucket():
    check_bucket(257, [16, 64, 256], None, "比最大的桶还长：返回 None，不能放进最大的桶，也不要抛异常")
    check_bucket(5, [], None, "桶表为空：返回 None")


test_no_bucket()

# %% TODO 3：无序的桶表 slug="todo3-hidden" todo=3 step="第四步 运行时选桶" nbgrader={"grade": true, "grade_id": "todo3_hidden", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# 隐藏测试：桶表无序、有重复
### BEGIN HIDDEN TESTS
def test_unsorted_buckets():
    for length in range(1, 40):
        for buckets in ([32, 8, 16], [16, 16, 4], [5], [33, 32, 31, 2]):
            want = min([b for b in buckets if b >= length], default=None)
            check_bucket(length, buckets, want, "桶表不保证有序")


test_unsorted_buckets()
### END HIDDEN TESTS

# %% [markdown] slug="todo3-why" todo=3 tags=["instructor-only"]
# **TODO 3 讲解。** 一行就够。桶表有序时可以用 `bisect.bisect_left`，但题目说不保证有序。
#
# 返回 `None` 而不是最大的桶，是接口设计：装不下是调用者必须处理的情形，悄悄截断会让结果出错而无人知道。

# %% [markdown] slug="together-text"
# ### 4.2 合在一起：同一批请求，四种策略各编译几次
#
# 三个函数都做完后，运行下面这一格。它用你的模拟器预言：同样的 200 个请求，每种策略编译几份、多少次退回 eager。

# %% 预言 slug="together" tags=["experiment"]
try:
    buckets = choose_buckets(stream, 4)
    padded = [bucket_for(n, buckets) for n in stream]
    for name, sizes, mode in [("static", stream, "static"), ("auto", stream, "auto"), ("dynamic", stream, "dynamic"),
                              ("4 buckets", padded, "static")]:
        events = Counter(simulate_dynamo_cache(sizes, mode))
        compiled = sum(count for event, count in events.items() if event.startswith("new_"))
        print(f"{name:<10} compiled {compiled}, eager calls {events['eager_limit']:>3}, hits {events['hit']}")
    print(f"buckets {buckets}: {sum(padded) / sum(stream) - 1:.0%} more tokens")
except NotImplementedError as todo:
    print(todo)

# %% [markdown] slug="stop-here"
# ## 🛑 STOP HERE
#
# 先自己做完三个 TODO，跑过上面全部的测试，再往下看。卡住了，先看提示，再重读报错里写的那一步。
#
# 真的做不下去时，参考答案和讲解在这里：[教师版 notebook]({{blob:solutions/06_dynamic_shapes/06_dynamic_shapes.ipynb}})。看完请关掉它，凭自己的理解再写一遍。


# %% [markdown] slug="step-5"
# ## 第五步 可选实验：同一批请求，五种跑法（Optional experiment）
#
# | 问题 | 固定什么 | 观察什么 |
# |---|---|---|
# | 模拟器说得对吗？ | 同一串大小，三种模式 | torch 真实的事件，逐次比较 |
# | 哪种策略跑得快？ | 同一批请求、同一个函数 | 热身之后跑完一批的时间，配对比较 |
# | 编译值得吗？ | 同上 | 第一遍的时间（含编译）、跑几批才回本 |
#
# ### 5.0 让 torch 自己说
#
# 用一个会记账的后端（backend）包住 `aot_eager`：编译时记一笔，运行时记一笔。`aot_eager` 只捕获图、不生成 kernel，所以不需要 C++ 编译器，也很快。这一格在 `dry_run` 时也会运行。

# %% 共用：导入 slug="exp-imports" tags=["experiment"] include="assets/cells/exp_imports.py"

# %% torch 真实的事件 slug="exp-observe" tags=["experiment"]
import logging

from torch._dynamo.backends.registry import lookup_backend

DYNAMIC = {"auto": None, "static": False, "dynamic": True}  # 模式 → torch.compile 的 dynamic 参数
logging.getLogger("torch._dynamo").setLevel(logging.ERROR)  # 到上限时的那行警告


def recording_backend(log, name):
    """包住后端 name：编译时往 log 里加 ('compile', 是否动态)，运行时加 ('run', 是否动态)。"""
    inner = lookup_backend(name)

    def backend(graph, inputs):
        dims = [d for x in inputs if isinstance(x, torch.Tensor) for d in x.shape]
        dynamic = any(isinstance(x, torch.SymInt) for x in [*inputs, *dims])
        log.append(("compile", dynamic))
        compiled = inner(graph, inputs)

        def run(*args):
            log.append(("run", dynamic))
            return compiled(*args)

        return run

    return backend


def event_of(log, size):
    """一次调用留下的记录 → 事件名。"""
    compiled = [dynamic for kind, dynamic in log if kind == "compile"]
    if compiled:
        return "new_dynamic" if compiled[0] else "new_one" if size == 1 else "new_static"
    return "hit" if log else "eager_limit"


# %% 三种模式，逐次比较 slug="exp-compare" tags=["experiment", "nbval-ignore-output"]
def observe_events(sizes, mode, limit=8):
    """真的用 torch.compile 跑一串大小 → 事件的列表。"""
    torch._dynamo.reset()
    log, events = [], []
    fn = torch.compile(lambda x: torch.relu(x) + 1, backend=recording_backend(log, "aot_eager"), dynamic=DYNAMIC[mode])
    with torch._dynamo.config.patch(recompile_limit=limit):
        for size in sizes:
            log.clear()
            fn(torch.zeros(size))
            events.append(event_of(log, size))
    return events


demo = [5, 5, 7, 1, 9, 8, 5]
for mode in DYNAMIC:
    real = observe_events(demo, mode, limit=3)
    try:
        agrees = "same as your simulator" if simulate_dynamo_cache(demo, mode, 3) == real else "your simulator differs"
    except NotImplementedError:
        agrees = "simulator not written yet"
    print(f"{mode:<8}", *(f"{n}:{event}" for n, event in zip(demo, real)), f"({agrees})")

# %% [markdown] slug="exp-settings-text"
# ### 5.1 设置
#
# `dry_run` 不测量；`real_cpu` 用 CPU 测，float32、单线程，主要时间花在编译上，约 40 秒；`real_gpu` 用 CUDA 测（编写本章的机器没有 GPU，这一条没有运行过）。没有 C++ 编译器时，Inductor 在 CPU 上不能用，会改用 `aot_eager` 并写进结果：那样只看得到守卫的开销，看不到加速。

# %% 实验设置 slug="exp-settings" tags=["settings"]
RUN_MODE = "dry_run"  # 'dry_run'、'real_cpu' 或 'real_gpu'
RUN_LABEL = "default"
PROFILE_ID = "INF-CUDA-MECHANISM"
GPU_RESULT_PATH = f"benchmarks/results/inf_dynamic_shapes_stream_{RUN_LABEL}.json"
GPU_DTYPE = "float16"  # real_cpu 一律用 float32
GPU_REQUESTS = 200
GPU_BUCKETS = 4
GPU_HIDDEN_SIZE = 1024
GPU_ROUNDS = 30  # 热身之后，每种策略跑多少遍
GPU_ATOL = GPU_RTOL = 2e-2

# %% [markdown] slug="exp-method"
# ### 5.2 测量并保存
#
# 负载是一段访存受限的函数：RMSNorm、平方 ReLU（squared ReLU<sup>[6]</sup>）、加残差。五种跑法：
#
# | 名字 | 怎样跑 |
# |---|---|
# | `eager` | 不编译 |
# | `auto` | `dynamic=None` |
# | `dynamic` | `dynamic=True` |
# | `static` | `dynamic=False`，前 8 种长度编译，其余退回 eager |
# | `buckets` | 先补零到桶，再静态编译，输出切回原来的长度；补零与切片的时间都算 |
#
# - 每种跑法用**自己的代码对象**：缓存挂在代码对象上，共用一个函数会互相占名额（见常见误区）。
# - 先冷跑一遍，时间含编译（`cold_ms`），每种跑法都从空的磁盘缓存编译起，载入编译器的时间不算；再热跑 `GPU_ROUNDS` 遍，每一轮五种跑法与一次 eager 对照按随机次序各跑一遍。
# - 加速比按轮配对：$\text{eager}/\text{策略}$，区间用 bootstrap，噪声带来自 eager 对 eager 的对照。
# - 回本批数（break-even）：使“冷跑 + 其余热跑”不慢于 eager 的最少批数。

# %% 共用：统计 slug="exp-statistics" tags=["experiment"] include="assets/cells/exp_statistics.py"

# %% 共用：区间与噪声带 slug="exp-verdict" tags=["experiment"] include="assets/cells/exp_verdict.py"

# %% 共用：同步与线程 slug="exp-timing" tags=["experiment"] include="assets/cells/exp_timing.py"

# %% 共用：硬件说明 slug="exp-hardware" tags=["experiment"] include="assets/cells/exp_hardware.py"

# %% 共用：运行模式 slug="exp-mode" tags=["experiment"] include="assets/cells/exp_mode.py"

# %% 共用：安全地写文件 slug="exp-file" tags=["experiment"] include="assets/cells/exp_file.py"

# %% 负载 slug="exp-workload" tags=["experiment"]
import types


def norm_relu2(x, weight):
    """RMSNorm → 平方 ReLU → 残差。x (T, H)，weight (H,) → (T, H)。每一行只看自己，补零的行不影响别的行。"""
    h = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight
    gate = torch.relu(h)
    return x + gate * gate * weight


def own_copy(name):
    """norm_relu2 的副本，有自己的代码对象，因此有自己的编译缓存。"""
    return types.FunctionType(norm_relu2.__code__.replace(co_name=name), globals(), name)


def quantile_buckets(lengths, k):
    """TODO 2 没做时的替身：等频的桶。"""
    ordered = sorted(lengths)
    return sorted({ordered[-(-len(ordered) * i // k) - 1] for i in range(1, k + 1)})


def pad_to(x, size):
    """x (T, H) 在后面补零 → (size, H)。"""
    return torch.nn.functional.pad(x, (0, 0, 0, size - x.shape[0]))


# %% 五种跑法 slug="exp-strategies" tags=["experiment"]
def make_strategies(buckets, backend):
    """→ {名字: (跑一个请求的函数, 记录)}。记录由 recording_backend 填写。"""
    made = {"eager": (own_copy("eager"), [])}
    for name, mode in (("auto", "auto"), ("dynamic", "dynamic"), ("static", "static"), ("buckets", "static")):
        log = []
        made[name] = torch.compile(own_copy(name), backend=recording_backend(log, backend), dynamic=DYNAMIC[mode]), log
    compiled, log = made["buckets"]

    def bucketed(x, weight):
        size = min(b for b in buckets if b >= x.shape[0])
        return compiled(pad_to(x, size), weight)[: x.shape[0]]

    return made | {"buckets": (bucketed, log)}


# %% 编译从零开始 slug="exp-cold" tags=["experiment"]
def cold_cache():
    """上下文管理器：Inductor 的磁盘缓存换成空的，免得一种跑法白用另一种编译好的代码。"""
    from torch._inductor import utils

    return (getattr(utils, "fresh_cache", None) or getattr(utils, "fresh_inductor_cache", contextlib.nullcontext))()


def load_compiler(backend, device):
    """先编译一个小函数：载入编译器要好几秒，不该算在第一种跑法头上。"""
    with cold_cache():
        torch.compile(lambda x: x + 1, backend=backend)(torch.zeros(4, device=device))


# %% 跑一批请求 slug="exp-pass" tags=["experiment"]
def run_stream(fn, requests, weight, device):
    """把一批请求从头到尾跑一遍 → 墙钟时间，ms。"""
    synchronize(device)
    begin = time.perf_counter_ns()
    for x in requests:
        fn(x, weight)
    synchronize(device)
    return (time.perf_counter_ns() - begin) / 1e6


def cold_pass(fn, log, requests, weight, device, tolerance):
    """第一遍：含编译。→ 时间、编译了几份（其中几份动态）、退回 eager 的次数、与 float64 比的最大误差。"""
    log.clear()
    cold_ms = run_stream(fn, requests, weight, device)
    compiled = [dynamic for kind, dynamic in log if kind == "compile"]
    runs = sum(kind == "run" for kind, _ in log)
    errors, close = [], True
    for x in {len(x): x for x in requests}.values():
        exact, out = norm_relu2(x.double(), weight.double()), fn(x, weight).double()
        errors.append((out - exact).abs().max().item())
        close = close and torch.allclose(out, exact, **tolerance)
    counts = {"graphs": len(compiled), "dynamic_graphs": sum(compiled), "eager_calls": len(requests) - runs}
    return {"cold_ms": cold_ms, **counts, "output_close": close, "max_error": max(errors)}


# %% 热跑 slug="exp-warm" tags=["experiment"]
def warm_passes(strategies, requests, weight, device, rounds, seed):
    """热跑：每一轮按随机次序各跑一遍，另加一遍 eager 作对照 → {名字: [每轮的 ms]}。"""
    rng, times = random.Random(seed), {name: [] for name in [*strategies, "control"]}
    for _ in range(rounds):
        for name in rng.sample(list(times), len(times)):
            fn = strategies["eager" if name == "control" else name][0]
            times[name].append(run_stream(fn, requests, weight, device))
    return times


# %% 一行结果 slug="exp-row" tags=["experiment"]
def break_even_streams(cold_ms, warm_ms, eager_ms):
    """最少几批（第一批是冷跑）总时间不超过 eager；永远追不上是 None。"""
    if cold_ms <= eager_ms:
        return 1
    return None if warm_ms >= eager_ms else math.ceil((cold_ms - warm_ms) / (eager_ms - warm_ms))


def strategy_row(name, cold, times, seed):
    """一种跑法的结果：冷、热、加速比与区间、判定、回本批数。"""
    ci95, band = ratio_ci95(times["eager"], times[name], seed), noise_band_of(ratio_ci95(times["eager"], times["control"], seed))
    warm, eager_ms = summarize_ms(times[name]), statistics.median(times["eager"])
    row = {"strategy": name, **cold, "warm": warm, "speedup": eager_ms / warm["median_ms"], "speedup_ci95": ci95, "noise_band": band}
    row["verdict"] = "baseline" if name == "eager" else verdict_from_ci(ci95, band)
    row["break_even_streams"] = 1 if name == "eager" else break_even_streams(cold["cold_ms"], warm["median_ms"], eager_ms)
    return row


# %% 实验用的桶 slug="exp-buckets" tags=["experiment"]
def pick_buckets(lengths, k):
    """用你的 choose_buckets；还没做或者不能用，就用等频的桶 → (桶, 来源)。"""
    try:
        buckets = list(choose_buckets(lengths, k))
        if buckets and max(buckets) >= max(lengths):
            return buckets, "choose_buckets"
    except Exception as error:
        print(f"choose_buckets 用不了（{type(error).__name__}），改用等频的桶。")
    return quantile_buckets(lengths, k), "quantile"


# %% 整个实验 slug="exp-report" tags=["experiment"]
def run_stream_experiment(plan):
    """五种跑法跑同一批请求 → 结果（dict）。"""
    device, lengths, seed = plan["device"], request_lengths(plan["requests"]), plan["seed"]
    buckets, source = pick_buckets(lengths, plan["buckets"])
    rng, place = torch.Generator().manual_seed(seed), (device, getattr(torch, plan["dtype"]))
    requests = [torch.randn(n, plan["hidden_size"], generator=rng).to(*place) for n in lengths]
    weight = (0.5 + torch.rand(plan["hidden_size"], generator=rng)).to(*place)
    tolerance = {"atol": plan["atol"], "rtol": plan["rtol"]}
    with torch.inference_mode(), one_cpu_thread(), torch._dynamo.config.patch(recompile_limit=8):
        torch._dynamo.reset()
        strategies = make_strategies(buckets, plan["backend"])
        load_compiler(plan["backend"], device)
        cold = {}
        for name, pair in strategies.items():
            with cold_cache():
                cold[name] = cold_pass(*pair, requests, weight, device, tolerance)
        graphs = {name: sum(kind == "compile" for kind, _ in log) for name, (_, log) in strategies.items()}
        times = warm_passes(strategies, requests, weight, device, plan["rounds"], seed)
        late = {name: sum(kind == "compile" for kind, _ in log) - graphs[name] for name, (_, log) in strategies.items()}
    cold["eager"]["eager_calls"] = len(requests)
    rows = [strategy_row(name, cold[name], times, seed) | {"recompiles_during_measurement": late[name]} for name in strategies]
    stream = {"lengths": lengths, "distinct_lengths": len(set(lengths)), "buckets": buckets, "bucket_source": source}
    padded = sum(min(b for b in buckets if b >= n) for n in lengths)
    return {"stream": stream | {"tokens": sum(lengths), "padded_tokens": padded}, "strategies": rows}


# %% 表头与结论 slug="exp-dress" tags=["experiment"]
def dress_report(body, plan):
    """加上表头与结论：best 是判为 faster、数值正确、测量中没有重编译的策略里热跑最快的一个。"""
    good = [r for r in body["strategies"] if r["verdict"] == "faster" and r["output_close"] and not r["recompiles_during_measurement"]]
    best = min(good, key=lambda row: row["warm"]["median_ms"])["strategy"] if good else None
    keys = ("requests", "hidden_size", "dtype", "backend", "rounds", "atol", "rtol", "seed")
    head = {"schema_version": "dynamic-shapes/v1", "semantic_id": "INF-DYNAMIC-SHAPES", "profile_id": plan["profile_id"]}
    head |= {"run_label": plan["run_label"], "workload": {key: plan[key] for key in keys}}
    head |= {"hardware": describe_hardware(plan["device"]), "environment": describe_environment()}
    tail = {"evidence_level": "local_mechanism_benchmark", "best_strategy": best}
    return head | body | tail | {"decision": "accept_for_selected_shapes" if best else "tune_or_fallback"}


# %% 运行（默认 dry_run） slug="exp-run" tags=["experiment", "nbval-ignore-output"]
device = experiment_device(RUN_MODE, PROFILE_ID)
if device is None:
    print("dry_run：什么也不测。把 5.1 的 RUN_MODE 改成 'real_cpu'（约 40 秒）或 'real_gpu'，再从 5.1 起重新运行。")
else:
    path = result_path(GPU_RESULT_PATH, device)
    check_label(path, RUN_LABEL)
    backend = "inductor" if device == "cuda" or describe_environment()["cxx_found"] else "aot_eager"
    plan = {"device": device, "dtype": GPU_DTYPE if device == "cuda" else "float32", "backend": backend}
    plan |= {"requests": GPU_REQUESTS, "buckets": GPU_BUCKETS, "hidden_size": GPU_HIDDEN_SIZE, "rounds": GPU_ROUNDS}
    plan |= {"atol": GPU_ATOL, "rtol": GPU_RTOL, "seed": 0, "profile_id": PROFILE_ID, "run_label": RUN_LABEL}
    save_report(path, dress_report(run_stream_experiment(plan), plan))

# %% [markdown] slug="exp-reader-text"
# ### 5.3 读结果

# %% 读 JSON slug="exp-reader" tags=["reader", "nbval-ignore-output"]
def load_stream_report():
    """先找 GPU 的结果，再找 CPU 的，取新的 → (路径, 结果)；都没有就是 (GPU 的路径, None)。"""
    paths = [Path(result_path(GPU_RESULT_PATH, device)) for device in ("cuda", "cpu")]
    found = [path for path in paths if path.exists()]
    if not found:
        return paths[0], None
    newest = max(found, key=lambda path: path.stat().st_mtime)
    return newest, json.loads(newest.read_text(encoding="utf-8"))


path, report = load_stream_report()
if report is None:
    print(f"还没有结果：{path}（CPU 的结果名末尾是 _cpu.json）。请先运行 5.2。")
else:
    for key in ("workload", "hardware", "evidence_level", "best_strategy", "decision"):
        print(f"{key}: {report[key]}")
    print({key: value for key, value in report["stream"].items() if key != "lengths"})
    for row in report["strategies"]:
        counts = f"graphs {row['graphs']} ({row['dynamic_graphs']} dynamic), eager calls {row['eager_calls']}"
        speed = f"cold {row['cold_ms']:.1f} ms, warm {row['warm']['median_ms']:.2f} ms, speedup {row['speedup']:.4f} {row['verdict']}"
        print(f"{row['strategy']:<8} {counts}, {speed}, break-even {row['break_even_streams']}")

# %% [markdown] slug="exp-plot-text"
# ### 5.4 画图
#
# 只读 JSON，不测量。没有你自己的结果时，画随本章附带的样例，标题里写着它是在什么机器上录的。

# %% 随章附带的样例 slug="exp-sample" tags=["plot"] sample="assets/samples/06_dynamic_shapes_cpu.json"
import json

# %% 两张图 slug="exp-plot-parts" tags=["plot"]
STYLES = {"eager": ("0.45", "-"), "auto": ("#003f7f", "--"), "dynamic": ("#003f7f", "-"), "static": ("#b34700", ":"), "buckets": ("#b34700", "-")}


def draw_warm(axis, rows):
    """左图：热跑一批的时间，柱上写编译份数与退回 eager 的次数。"""
    names, medians = [row["strategy"] for row in rows], [row["warm"]["median_ms"] for row in rows]
    axis.bar(names, medians, color=[STYLES[name][0] for name in names], edgecolor="0.1")
    for at, row in enumerate(rows):
        axis.text(at, row["warm"]["median_ms"], f"{row['graphs']} graphs\n{row['eager_calls']} eager", ha="center", va="bottom", fontsize=8)
    axis.set(ylabel="warm pass (ms)", title="One stream, after compiling", ylim=(0, 1.25 * max(medians)))


def draw_total(axis, rows, streams=(1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)):
    """右图：连跑若干批的总时间，第一批含编译。"""
    for row in rows:
        color, style = STYLES[row["strategy"]]
        total = [(row["cold_ms"] + (n - 1) * row["warm"]["median_ms"]) / 1e3 for n in streams]
        axis.plot(streams, total, style, color=color, linewidth=2, label=row["strategy"])
    axis.set(xlabel="streams", ylabel="total time (s)", xscale="log", yscale="log", title="Compile time included")
    axis.legend(frameon=False)


# %% 画图 slug="exp-plot" tags=["plot", "nbval-ignore-output"]
def plot_stream(report, note=""):
    """一份结果 → figure。"""
    fig, axes = plt.subplots(1, 2, figsize=(11, 4.4), facecolor="white")
    for axis, draw in zip(axes, (draw_warm, draw_total)):
        draw(axis, report["strategies"])
        axis.set_facecolor("white")
    work, hardware, stream = report["workload"], report["hardware"], report["stream"]
    shape = f"{work['requests']} requests, {stream['distinct_lengths']} lengths, H={work['hidden_size']}, {work['dtype']}, {work['backend']}"
    fig.suptitle(f"{note}{shape}\n{hardware['device']}, torch {hardware['torch_version']}")
    fig.tight_layout()
    return fig


path, report = load_stream_report()
if report is None:
    print("没有你自己的结果，下面画的是录好的样例，不是你的机器。")
figure = plot_stream(report or RECORDED_SAMPLE, "" if report else "Recorded sample, not your machine: ")
plt.show()

# %% [markdown] slug="exp-interpret"
# *图 3　左：编译好以后跑一批的时间，柱上是编译份数与退回 eager 的次数。右：连跑若干批的总时间，第一批含编译；折线低于 eager 的地方才算回本。样例录制时机器上还有别的任务，绝对时间偏大，请看比例。*
#
# ### 5.5 怎样解释，下一步做什么
#
# | 你看到的 | 可以下的结论 | 下一步 |
# |---|---|---|
# | `dynamic` 或 `auto` 是 `faster`，份数 1 到 3 | 长度多变时，均码比定做划算 | 在真实模型上复测；记下回本批数 |
# | `static` 有大量 eager 调用 | 名额用完了，其余请求没有享受到编译 | 分桶，或换 `auto`；不要只是调高上限 |
# | `buckets` 没有 `dynamic` 快 | 填充多算的，加上补零和切片，比静态代码省下的多 | 多加几个桶，或干脆用动态 |
# | `recompiles_during_measurement` 不是 0 | 热跑里混进了编译，时间不可信 | 找出没有预热到的形状 |
# | 回本批数很大，或是空 | 进程活得不够久，编译不值得 | 保持 eager，或把编译挪到启动时 |
#
# 三点提醒：
#
# - **时间要两本账。** 热跑只说明以后快不快；第一批的用户等的是冷跑。
# - 动态代码要做取余、边界之类的通用处理，形状固定时可能不如静态代码；但它**一份顶一百份**。
# - 这里的负载逐行独立，补零不影响别的行。注意力不是这样：补了零还要加掩码，否则填充的位置会分走权重（见{{chapter:03_flash_attention|第 3 章}}）。

# %% [markdown] slug="questions"
# ## 思考题（Questions）
#
# 1. `auto` 模式最多存几个条目？`dynamic` 呢？为什么它们碰不到默认的上限？
# 2. 把 `recompile_limit` 调到 200，`static` 就能给每种长度都编译一份。值得吗？列出要考虑的两项代价。
# 3. 请求长度的分布明天变了，昨天选的桶还最优吗？怎样发现？
# 4. `choose_buckets` 只看填充。若每个桶编译要 $c$ 毫秒、每个填充位置要 $p$ 毫秒，目标函数该怎样改？算法要改哪一行？
# 5. 为什么“桶只需取出现过的长度”？把长度对齐到 64 的倍数（对 kernel 更友好）时，这个结论还成立吗？
# 6. 两个维度都会变（batch 与长度），条目的守卫该怎样描述？桶的个数怎样增长？
#
# <details><summary>参考思路</summary>
#
# 1. `auto` 至多 3 个：第一份静态、一份动态、一份 1；`dynamic` 至多 2 个。动态条目接受一切 $n\ge2$，之后不会再有新的。
# 2. 编译时间（样例里每份约三秒）与内存；还有每次调用逐个检查守卫的时间。
# 3. 不一定。监控填充率（填充 / 总 token）与 `None` 的比例。
# 4. 目标变成 $p\cdot$填充 $+\,c\cdot$桶数；递推不变，最后按新的目标在各层的答案里取最小。
# 5. 缩到最长的请求，填充只减不增。对齐之后候选变成“出现过的长度向上取整”，同样的论证仍成立。
# 6. 守卫是两个条件的“与”；桶是网格，个数相乘，所以要么限制 batch 的档数，要么让一个维度动态。
#
# </details>

# %% [markdown] slug="mistakes"
# ## 常见误区（Common mistakes）
#
# | 误区 | 事实 |
# |---|---|
# | 每种形状 `torch.compile` 一次，就各有各的编译结果 | 缓存挂在**代码对象**上。同一个函数包两次，条目算在一起，名额也算在一起 |
# | 到了上限，程序会报错 | 不报错，只在日志里留一行警告，之后的新形状按 eager 跑 |
# | 到了上限，所有调用都变成 eager | 已有的条目照常命中 |
# | `dynamic=True` 就只编译一次 | 大小 1 还要单独编译一次 |
# | `auto` 遇到第二种大小，会再编译一份静态的 | 会换成动态的；这正是 `dynamic=None` 的意思 |
# | 动态的维度之间互不相干 | 编译时恰好相等的两个大小会共用一个符号（duck shaping）：用 $(4,4)$ 编译出的动态代码不接受 $(5,4)$，又要重编译一次 |
# | 桶越多越好 | 每个桶多一次编译、多占一个名额；超过 `recompile_limit` 的桶会退回 eager |
# | 装不下就放进最大的桶 | 那是截断。返回 `None`，让调用者决定 |

# %% [markdown] slug="summary-text"
# ## 总测试（Summary）
#
# 三个 TODO 的可见测试一起再跑一遍。不计分。

# %% 总测试 slug="summary" tags=["summary"] nbgrader={"grade": false, "grade_id": "summary", "locked": true, "schema_version": 3, "solution": false, "task": false}
def test_dynamic_shapes():
    for test in (test_event_list, test_static, test_dynamic, test_auto, test_size_one, test_limit, test_unknown_mode):
        test()
    for test in (test_bucket_list, test_small_buckets, test_repeated_lengths, test_optimal):
        test()
    for test in (test_no_useless_buckets, test_bucket_edges, test_smallest_bucket, test_exact_fit, test_no_bucket):
        test()
    print("✅ 三个 TODO 的可见测试全部通过：缓存的模拟、分桶、选桶都符合规则。")


test_dynamic_shapes()

# %% [markdown] slug="links"
# ## 小结与链接（Summary and links）
#
# - 守卫说明一份代码何时有效；一个守卫都不通过，就重编译，或者到了上限退回 eager。
# - 1 总是单独一份；`auto` 第二次就换成动态。
# - 分桶用填充换种类；填充最少的桶可以用动态规划求出。
# - 好不好用要算两本账：编译之后的时间，和编译本身的时间。
#
# **下一步**：{{chapter:07_execution_evidence|第 7 章 执行证据}}。编译了、命中了，还要证明真的跑了你以为的那个 kernel。
#
# **资料来源**
#
# 1. PyTorch，[The Zero-One Specialization Problem](https://docs.pytorch.org/docs/main/compile/dynamic_shapes_zero_one_specialization.html)：大小 0 和 1 自动特化。
# 2. PyTorch，[torch.compile](https://docs.pytorch.org/docs/stable/generated/torch.compile.html)：`dynamic` 的三种取值；缓存挂在代码对象上，到 `recompile_limit`（默认 8）后退回 eager。
# 3. vLLM Gaudi，[Warm-Up](https://docs.vllm.ai/projects/gaudi/en/latest/features/warmup.html)：启动时对每个桶跑一遍，预先编译。
# 4. PyTorch，[Dealing with Recompilations](https://docs.pytorch.org/docs/stable/compile/programming_model.recompilation.html)：`dynamic=None` 在第一次编译之后才尝试动态形状；用 `TORCH_LOGS=recompiles` 看原因。
# 5. PyTorch，[Dynamic Shapes](https://docs.pytorch.org/docs/stable/torch.compiler_dynamic_shapes.html)：默认假定静态，符号化的维度，duck shaping。
# 6. So 等，*Primer*，[arXiv:2109.08668](https://arxiv.org/abs/2109.08668)：平方 ReLU。
# 7. 2.4 的规则、共用代码对象、duck shaping：由 5.0 的单元格与本章的自动测试在 torch 2.13（CPU）上运行核对。
