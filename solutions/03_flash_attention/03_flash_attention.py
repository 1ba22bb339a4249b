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
# # INF-FLASH-ATTENTION. FlashAttention Simulation | FlashAttention 的模拟
#
# [![在 Colab 打开本章](https://colab.research.google.com/assets/colab-badge.svg)]({{colab}}) [![在 ModelScope 打开本章](https://img.shields.io/badge/Open%20in-ModelScope-624aff)]({{modelscope}})
#
# **难度**：Medium ｜ **环境**：CPU-first + 可选单卡 GPU ｜ **标签**：注意力、在线 softmax、分块、显存读写 ｜ **预计用时**：90 分钟（第一步 10，三个 TODO 70，其余 10；第五步的实验另计）｜ 版本 {{version}}
#
# 注意力的公式只有三行，慢的却不是计算。中间那张 $N\times N$ 的分数表要在显存里来回搬好几趟。FlashAttention 不改公式，只改次序：把表切成小块，每一块在片上用完就扔。
# 本章用普通的 PyTorch 张量把它模拟一遍，再看真正的 kernel 快多少、什么时候用不上。
#
# **学完本章，你能够**
#
# 1. 说清注意力慢在哪里：不是算得多，而是搬得多；
# 2. 写出**在线 softmax**（online softmax）：一次只看一块分数，结果与一次看完相同；
# 3. 写出**分块注意力**（tiled attention），从头到尾不出现整张分数表；
# 4. 算出标准注意力与 FlashAttention 各读写多少字节，并说出后者什么时候不划算；
# 5. 让 PyTorch 告诉你：这次注意力走的是 flash，还是退回了 math。
#
# **先修**：{{chapter:02_operator_fusion|第 2 章 算子融合入门}}（读写量的数法）；会用 `torch` 做矩阵乘法和切片。
#
# **上一章**：{{chapter:02_operator_fusion|第 2 章 算子融合入门}} ｜ **下一章**：{{chapter:04_execution_dispatch|第 4 章 推理融合与后端分派}}
#
# **怎样用这个 notebook**：从上到下读，从上到下运行。遇到 TODO，把 `raise NotImplementedError(...)` 那一行换成你的代码，再运行它后面的测试。

# %% [markdown] slug="map"
# ## 本章路线
#
# | 步骤 | 问题 | 你要写的函数 |
# |---|---|---|
# | 第一步 | 注意力为什么被内存拖住 | （只读） |
# | 第二步 | 不看完整行，怎么算 softmax | TODO 1 `online_softmax_update` |
# | 第三步 | 不存整张表，怎么算注意力 | TODO 2 `tiled_attention` |
# | 第四步 | 到底省了多少字节 | TODO 3 `attention_io_bytes` |
# | 第五步 | 真实的 SDPA 快多少，什么输入会退回 math | （可选实验） |
#
# 本章的代码**不会**比 PyTorch 快：Python 循环只用来说明算法。算法对了，第五步再看真正的 kernel。

# %% 导入 slug="imports" nbgrader={"grade": false, "grade_id": "imports", "locked": true, "schema_version": 3, "solution": false, "task": false}
import math

import torch

NEG_INF = float("-inf")

# %% [markdown] slug="step-1"
# ## 第一步 直觉：慢在搬运（Why attention is memory-bound）
#
# ### 1.1 一张 $N\times N$ 的分数表
#
# 单个注意力头的计算只有三行：
#
# $$S=\frac{QK^{\top}}{\sqrt d}\in\mathbb R^{N\times N},\qquad P=\mathrm{softmax}(S),\qquad O=PV\in\mathbb R^{N\times d}$$
#
# 输入和输出都是 $N\times d$，中间的 $S$ 和 $P$ 却是 $N\times N$。先看看它们有多大：

# %% slug="table-size"
def naive_attention(q, k, v):
    """标准写法。q (Nq, d)，k (Nk, d)，v (Nk, dv) → (Nq, dv)。中间有一整张 (Nq, Nk) 的分数表。"""
    scores = q @ k.T / math.sqrt(q.shape[1])  # (Nq, Nk)
    weights = torch.softmax(scores, dim=-1)  # (Nq, Nk)
    return weights @ v  # (Nq, dv)


HEAD_DIM, FP16_BYTES = 64, 2
print(f"{'N':>6} | {'Q, K, V, O':>12} | {'scores S':>12} | ratio")
for n in (256, 1024, 4096, 16384):
    inputs = 4 * n * HEAD_DIM * FP16_BYTES  # 字节，单个头
    scores = n * n * FP16_BYTES
    print(f"{n:>6} | {inputs / 2**20:>8.2f} MiB | {scores / 2**20:>8.2f} MiB | {scores / inputs:.0f}x")

# %% [markdown] slug="step-1-2"
# $N$ 每大一倍，输入大一倍，分数表大四倍。$N=16384$ 时，一个头的一张表就要 512 MiB，是输入的 64 倍。
#
# 标准实现里，这张表要在显存（HBM）里走好几趟：写出 $S$ → 读 $S$ 做 softmax → 写出 $P$ → 读 $P$ 乘 $V$。
# 而 GPU 片上的 SRAM 快得多，也小得多。FlashAttention 的想法只有一句话：
#
# > **把表切成小块，每一块在片上算完、用完、扔掉，永远不写回显存。**
#
# ![左：标准注意力把 N×N 的 S 和 P 写进显存再读回来；右：一块 Q 留在片上，K、V 一块一块流过，分数块只在片上]({{raw:assets/figures/03_tiling.png}})
#
# *图 1　左：标准注意力把 $S$、$P$ 写进显存。右：分块注意力让一块 $Q$ 留在片上，$K$、$V$ 一块一块流过，片上只有一小块分数。*
#
# ### 1.2 难点：softmax 要看完整行
#
# 矩阵乘法天生可以分块，softmax 不行：分母是**整行**的和，为了不溢出还要先减去**整行**的最大值。
# 只看到半行时，最大值和分母都还不知道。第二步解决这个问题。

# %% [markdown] slug="step-2"
# ## 第二步 在线 softmax（Online softmax）
#
# ### 2.1 三个量，一条不变式
#
# 想象老师逐页翻成绩单，要算加权平均，又不许翻回去。他只在纸上记三个数，每翻一页改一次。对每一行分数，我们也只记三个量：
#
# | 量 | 形状 | 含义（只对**已经看过**的分数而言） |
# |---|---|---|
# | `m` | `(Bq,)` | 最大值 $m=\max_j s_j$ |
# | `l` | `(Bq,)` | 指数和 $\ell=\sum_j e^{s_j-m}$ |
# | `acc` | `(Bq, dv)` | 加权和 $a=\sum_j e^{s_j-m}\,v_j$（**还没有**除以 $\ell$） |
#
# 不变式（invariant）：任何时候 $a/\ell$ 都是已看过部分的注意力输出。看完整行，$a/\ell$ 就是答案。
#
# 起点：什么都没看过，$m=-\infty,\ \ell=0,\ a=0$。

# %% [markdown] slug="step-2-2"
# ### 2.2 换一个最大值，旧账要打折
#
# 新来一块分数 `scores`（形状 `(Bq, Bk)`）和对应的 `values`（形状 `(Bk, dv)`）。新的最大值是
#
# $$m'=\max\bigl(m,\ \max_j s_j\bigr)$$
#
# 旧的 $\ell$、$a$ 是以 $m$ 为基准记的账，现在基准换成 $m'$。因为
# $e^{s-m'}=e^{s-m}\cdot e^{m-m'}$，旧账整体乘一个折扣 $\alpha=e^{m-m'}\le 1$ 就行：
#
# $$\ell'=\alpha\,\ell+\sum_j e^{s_j-m'},\qquad a'=\alpha\,a+\sum_j e^{s_j-m'}v_j$$
#
# 三点要记住：
#
# 1. 折扣 $\alpha$ 要同时乘在 $\ell$ **和** $a$ 上。只乘一个，分子分母的基准就不一致。
# 2. $m'$ 是**到目前为止**的最大值，不是这一块的最大值。新块更小时，$m'=m$，$\alpha=1$。
# 3. 指数的自变量永远 $\le 0$，所以分数到 $\pm 10^4$ 也不会溢出。float32 里 $e^{89}$ 就已经是 `inf`。

# %% [markdown] slug="step-2-3"
# ### 2.3 手算一遍
#
# 一行三个分数 $[2,\,1\mid 4]$，值 $[1,\,2\mid 3]$，先看前两个，再看最后一个：
#
# | 看到 | $m$ | $\alpha$ | $\ell$ | $a$ | $a/\ell$ |
# |---|---|---|---|---|---|
# | 起点 | $-\infty$ | | 0 | 0 | |
# | $2,\,1$ | 2 | 0 | $1+e^{-1}=1.3679$ | $1\cdot1+2e^{-1}=1.7358$ | 1.2689 |
# | $4$ | 4 | $e^{-2}=0.1353$ | $0.1353\times1.3679+1=1.1851$ | $0.1353\times1.7358+3=3.2349$ | 2.7296 |
#
# 用一次算完的 softmax 核对：

# %% slug="by-hand"
row, row_values = torch.tensor([2.0, 1.0, 4.0]), torch.tensor([1.0, 2.0, 3.0])
print(f"softmax(row) @ values = {torch.softmax(row, 0) @ row_values:.4f}")
for size in (1, 2, 3):
    print(f"after {size} scores: {torch.softmax(row[:size], 0) @ row_values[:size]:.4f}")

# %% [markdown] slug="step-2-4"
# ### 2.4 整行都被遮住怎么办
#
# 被掩码遮住的位置，分数是 $-\infty$，$e^{-\infty}=0$，自然不占份额。麻烦出在**整行**都是 $-\infty$ 的时候：
# $m'=-\infty$，于是 $m-m'=-\infty-(-\infty)$ 是 `nan`，而且会一路传下去。
#
# 规则：**到目前为止一个分数都看不见的行，状态保持起点不变**：$m=-\infty$、$\ell=0$、$a=0$。
# 常用做法：求指数时，把等于 $-\infty$ 的基准换成 0。这时 $e^{-\infty-0}=0$，折扣和新项都是 0。
#
# 注意只在**求指数时**替换。若把 `m` 本身存成 0，后面来了 $-10^4$ 的分数，基准 0 会把它们全部压成 0。

# %% slug="nan-demo"
minus_inf = torch.tensor(NEG_INF)
print("exp(-inf - (-inf)) =", torch.exp(minus_inf - minus_inf).item())
print("exp(-inf - 0)      =", torch.exp(minus_inf - 0).item())

# %% [markdown] slug="todo1-task"
# ### TODO 1　实现 `online_softmax_update`
#
# 用时 25 分钟 ｜ 难度 ●●○ ｜ 要写的：函数体，约 5 行
#
# | 输入 | 形状 | 说明 |
# |---|---|---|
# | `m`, `l` | `(Bq,)` | 旧状态；没看过任何分数的行是 $-\infty$ 和 0 |
# | `acc` | `(Bq, dv)` | 旧的加权和 |
# | `scores` | `(Bq, Bk)` | 已经乘过缩放；被遮住的位置是 $-\infty$ |
# | `values` | `(Bk, dv)` | 这一块的值 |
#
# 返回 `(m, l, acc)`：新状态，形状和 dtype 与旧状态相同。**不要修改输入**（例如不要用 `+=` 改 `acc`）。
#
# <details><summary>提示 1：先写哪一行？</summary>
#
# 先求 `m_new`。`scores.max(dim=-1).values` 是这一块每行的最大值，`torch.maximum` 逐元素取较大者。
# </details>
#
# <details><summary>提示 2：形状对不上</summary>
#
# `(Bq,)` 要变成 `(Bq, 1)` 才能与 `(Bq, Bk)` 相减：写 `m_new[:, None]`。
# </details>
#
# <details><summary>提示 3：出现 nan</summary>
#
# 准备一个只用来求指数的基准：`torch.where(m_new == NEG_INF, torch.zeros_like(m_new), m_new)`。
# </details>

# %% 在线 softmax 的一步更新 slug="todo1" todo=1 stub="请先完成 TODO 1：online_softmax_update 还没有实现" nbgrader={"grade": false, "grade_id": "todo1", "locked": false, "schema_version": 3, "solution": true, "task": false}
def online_softmax_update(m, l, acc, scores, values):
    """并入一块分数。m, l (Bq,)；acc (Bq, dv)；scores (Bq, Bk)；values (Bk, dv) → 新的 (m, l, acc)。"""
    # TODO 1：依次求新的最大值、折扣、这一块的指数，再更新 l 和 acc
    ### BEGIN SOLUTION
    m_new = torch.maximum(m, scores.max(dim=-1).values)  # (Bq,)
    base = torch.where(m_new == NEG_INF, torch.zeros_like(m_new), m_new)  # (Bq,)，只用来求指数
    alpha = torch.exp(m - base)  # (Bq,)，旧账的折扣
    p = torch.exp(scores - base[:, None])  # (Bq, Bk)
    l_new = alpha * l + p.sum(dim=-1)  # (Bq,)
    acc_new = alpha[:, None] * acc + p @ values  # (Bq, dv)
    return m_new, l_new, acc_new
    ### END SOLUTION


# %% [markdown] slug="todo1-tests"
# #### TODO 1 的测试
#
# 一个单元格测一种行为。报错会写明期望、得到、可能的原因和该重读哪一步。几格同时不过时，先改最上面的一格：下面几格往往是同一个错。

# %% TODO 1：返回值的形状与 dtype，不改输入 slug="todo1-shape" todo=1 step="2.1 三个量，一条不变式" nbgrader={"grade": true, "grade_id": "todo1_shape", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
NEG_INF = float("-inf")


def complain(what, want, got, cause, step):
    """一条报错：测的是什么、应得、实得、可能的原因、请重读哪一步。"""
    return f"{what}\n  应得：{want}\n  实得：{got}\n  可能的原因：{cause}\n  请重读：{step}"


def test_update_shape():
    state = torch.tensor([0.0, 1.0]), torch.tensor([1.0, 2.0]), torch.ones(2, 3)
    scores, values = torch.tensor([[1.0, 0.0, 2.0, 1.0], [0.0, 3.0, 0.0, 1.0]]), torch.ones(4, 3)
    before = [x.clone() for x in (*state, scores, values)]
    new, step = online_softmax_update(*state, scores, values), "2.1 三个量，一条不变式"
    is_triple = isinstance(new, (tuple, list)) and len(new) == 3
    assert is_triple, complain("返回值", "(m, l, acc)", type(new).__name__, "少返回了一项，或返回了别的东西", step)
    for name, x, old in zip(("m", "l", "acc"), new, state):
        got = (tuple(x.shape), x.dtype) if isinstance(x, torch.Tensor) else type(x).__name__
        want = tuple(old.shape), old.dtype
        assert got == want, complain(f"{name} 的形状与 dtype", want, got, "求最大值或求和时没有去掉最后一维", step)
    same = [bool(torch.equal(a, b)) for a, b in zip(before, (*state, scores, values))]
    cause = "用了 += 之类的原地运算，改到了输入"
    assert all(same), complain("m, l, acc, scores, values 是否保持不变", [True] * 5, same, cause, "TODO 1 的说明")


test_update_shape()

# %% TODO 1：只有一块时等于普通 softmax slug="todo1-first" todo=1 step="2.1 三个量，一条不变式" nbgrader={"grade": true, "grade_id": "todo1_first", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
def check_tensor(what, got, want, cause, step, tol=1e-5):
    """依次检查类型、形状、有没有 nan/inf、数值。want 是 float64 的参考值，误差按它的最大绝对值折算。"""
    kind = type(got).__name__
    assert isinstance(got, torch.Tensor), complain(what, "torch.Tensor", kind, "返回值的类型不对", step)
    shapes = tuple(want.shape), tuple(got.shape)
    assert shapes[0] == shapes[1], complain(what, f"形状 {shapes[0]}", f"形状 {shapes[1]}", cause, step)
    bad = int((~torch.isfinite(got)).sum())
    assert bad == 0, complain(what, "全是有限的数", f"{bad} 个 nan 或 inf", cause, step)
    error = (got.double() - want).abs()
    at = int(error.argmax())
    values = [f"第 {at} 个元素是 {x.flatten()[at].item():.6g}" for x in (want, got)]
    assert error.max() <= tol * max(1.0, want.abs().max().item()), complain(what, *values, cause, step)


def feed(*blocks):
    """从起点开始，把若干块 (scores, values) 依次交给 online_softmax_update，返回最后的 (m, l, acc)。"""
    rows, width = blocks[0][0].shape[0], blocks[0][1].shape[1]
    state = torch.full((rows,), NEG_INF), torch.zeros(rows), torch.zeros(rows, width)
    for scores, values in blocks:
        state = online_softmax_update(*state, scores, values)
        is_triple = isinstance(state, (tuple, list)) and len(state) == 3
        assert is_triple, complain("返回值", "(m, l, acc)", type(state).__name__, "少返回了一项", "2.1 三个量，一条不变式")
    return state


def test_single_block():
    scores, values = torch.tensor([[2.0, 1.0, 4.0], [0.5, -1.0, 0.0]]), torch.tensor([[1.0, 0.0], [2.0, 1.0], [3.0, -1.0]])
    m, l, acc = feed((scores, values))
    s, step = scores.double(), "2.1 三个量，一条不变式"
    p = torch.exp(s - s.amax(1, keepdim=True))
    check_tensor("m", m, s.amax(1), "m 应是每一行的最大值，沿最后一维求", step)
    check_tensor("l", l, p.sum(1), "l 应是 exp(s - m) 的和；起点的 l=0 不该留下痕迹", step)
    check_tensor("acc", acc, p @ values.double(), "acc 是 exp(s - m) 与 values 的矩阵乘积，此时还不除以 l", step)


test_single_block()

# %% TODO 1：最大值变大时旧账打折 slug="todo1-rescale" todo=1 step="2.2 换一个最大值，旧账要打折" nbgrader={"grade": true, "grade_id": "todo1_rescale", "locked": true, "points": 7, "schema_version": 3, "solution": false, "task": false}
def test_rescale():
    first = torch.tensor([[2.0, 1.0], [0.0, 0.5]]), torch.tensor([[1.0, -1.0], [2.0, 0.5]])
    second = torch.tensor([[4.0], [1.5]]), torch.tensor([[3.0, 2.0]])
    m, l, acc = feed(first, second)
    s, step = torch.cat([first[0], second[0]], 1).double(), "2.2 换一个最大值，旧账要打折"
    v = torch.cat([first[1], second[1]]).double()
    p = torch.exp(s - s.amax(1, keepdim=True))
    check_tensor("m", m, s.amax(1), "m 应是两块合起来的最大值", step)
    check_tensor("l", l, p.sum(1), "旧的 l 没有乘折扣 exp(m - m')，或折扣写反成 exp(m' - m)", step)
    check_tensor("acc", acc, p @ v, "旧的 acc 没有乘折扣 exp(m - m')，或只给 l 打了折", step)


test_rescale()

# %% TODO 1：后来的块更小，分数到 ±1e4 slug="todo1-running-max" todo=1 step="2.2 换一个最大值，旧账要打折" nbgrader={"grade": true, "grade_id": "todo1_running_max", "locked": true, "points": 7, "schema_version": 3, "solution": false, "task": false}
def test_running_maximum():
    big = torch.tensor([[1e4, 9999.0], [-1e4, -9998.0]]), torch.tensor([[1.0], [2.0]])
    small = torch.tensor([[-1e4, 9998.0], [-9999.0, -1e4]]), torch.tensor([[4.0], [8.0]])
    step = "2.2 换一个最大值，旧账要打折"
    cause = "m 丢了：新的最大值要与旧的 m 比较，所有指数都要减去它，自变量才不会是正数"
    for name, order in (("先大后小", (big, small)), ("先小后大", (small, big))):
        m, l, acc = feed(*order)
        s = torch.cat([scores for scores, _ in order], 1).double()
        v = torch.cat([values for _, values in order]).double()
        p = torch.exp(s - s.amax(1, keepdim=True))
        check_tensor(f"{name}，m", m, s.amax(1), cause, step)
        check_tensor(f"{name}，l", l, p.sum(1), cause, step)
        check_tensor(f"{name}，acc", acc, p @ v, cause + "；acc 也要打折", step)


test_running_maximum()

# %% TODO 1：整行被遮住，没有 nan slug="todo1-masked" todo=1 step="2.4 整行都被遮住怎么办" nbgrader={"grade": true, "grade_id": "todo1_masked", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
def test_masked_rows():
    step = "2.4 整行都被遮住怎么办"
    hidden = torch.tensor([[NEG_INF, NEG_INF], [0.0, NEG_INF]]), torch.tensor([[1.0], [2.0]])
    late = torch.tensor([[-1e4], [NEG_INF]]), torch.tensor([[5.0]])
    _, l, acc = feed(hidden)
    cause = "-inf - (-inf) 是 nan；整行看不见时 l 与 acc 应保持 0"
    check_tensor("第一行全遮住，l", l, torch.tensor([0.0, 1.0]).double(), cause, step)
    check_tensor("第一行全遮住，acc", acc, torch.tensor([[0.0], [1.0]]).double(), cause, step)
    _, l, acc = feed(hidden, late)
    cause = "m 被存成了 0 或别的有限值，压没了后来的 -1e4；或已有内容的行被一块全遮住的分数冲掉"
    check_tensor("先遮住、后看见，l", l, torch.tensor([1.0, 1.0]).double(), cause, step)
    check_tensor("先遮住、后看见，acc", acc, torch.tensor([[5.0], [1.0]]).double(), cause, step)


test_masked_rows()

# %% TODO 1：许多随机块，任意次序 slug="todo1-hidden" todo=1 step="2.2 换一个最大值，旧账要打折" nbgrader={"grade": true, "grade_id": "todo1_hidden", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
# 隐藏测试：块数、块宽与次序都不同，分数有正有负，部分位置被遮住
### BEGIN HIDDEN TESTS
def test_random_blocks():
    rng = torch.Generator().manual_seed(3)
    for rows, width, sizes in ((5, 3, (1, 4, 2, 7)), (1, 1, (3, 1, 1)), (4, 6, (2, 2, 2, 2, 2))):
        blocks = []
        for size in sizes:
            scores = 30 * torch.randn(rows, size, generator=rng)
            scores[torch.rand(rows, size, generator=rng) < 0.25] = NEG_INF
            blocks.append((scores, torch.randn(size, width, generator=rng)))
        blocks.append((torch.randn(rows, 1, generator=rng), torch.randn(1, width, generator=rng)))
        for order in (blocks, blocks[::-1]):
            m, l, acc = feed(*order)
            s = torch.cat([scores for scores, _ in order], 1).double()
            p = torch.exp(s - s.amax(1, keepdim=True))
            check_tensor("m", m, s.amax(1), "最大值", "2.2")
            check_tensor("l", l, p.sum(1), "指数和", "2.2")
            check_tensor("acc", acc, p @ torch.cat([values for _, values in order]).double(), "加权和", "2.2")


test_random_blocks()
### END HIDDEN TESTS

# %% [markdown] slug="todo1-why" todo=1 tags=["instructor-only"]
# **TODO 1 讲解。** 参考解按公式逐行写：`m_new` → 折扣 `alpha` → 这一块的 `p` → 两次更新。
#
# - 起点 $m=-\infty$ 时 $\alpha=e^{-\infty}=0$，旧账自动清零，不需要为“第一块”写分支。
# - `base` 只在求指数时代替 $-\infty$；返回的仍是 `m_new`。
# - `acc` 不在这里除以 $\ell$：每一步都除，下一步还要乘回来。FlashAttention-2 的一项改进就是把除法推迟到最后
#   （[arXiv:2307.08691](https://arxiv.org/abs/2307.08691)，3.1 节）。
# - 常见错误：折扣写成 `exp(m_new - m)`（溢出）；只给 `l` 打折；用这一块的最大值当 `m_new`；原地改 `acc`。

# %% [markdown] slug="step-3"
# ## 第三步 分块注意力（Tiled attention）
#
# ### 3.1 两层循环
#
# 外层取一块查询 $Q_i$，带着自己的状态 $(m,\ell,a)$；内层让 $K_j$、$V_j$ 一块一块流过：
#
# ```text
# for 每一块查询 Q_i:                      # (Bq, d)
#     m, l, acc ← 起点
#     for 每一块键值 K_j, V_j:             # (Bk, d), (Bk, dv)
#         S ← Q_i K_jᵀ / sqrt(d)           # (Bq, Bk)，只有这么大
#         causal 时，把看不见的位置改成 -inf
#         m, l, acc ← online_softmax_update(m, l, acc, S, V_j)
#     O_i ← acc / l                        # (Bq, dv)，每块查询只除一次
# ```
#
# 本章两层循环用同一个块长 `block`。
#
# ### 3.2 缩放与最后一块
#
# - 缩放是 $1/\sqrt d$，$d$ 是**键的维度**（`q.shape[1]`），与值的维度 $d_v$、与块长都无关。
#   没有它，$d$ 越大点积的方差越大，softmax 会挤成近似 one-hot（[Vaswani 等，arXiv:1706.03762](https://arxiv.org/abs/1706.03762)，3.2.1 节）。
# - $N$ 不一定是 `block` 的倍数，最后一块（ragged block）会短一截；`block` 也可能比 $N$ 还大。切片 `k[j : j + block]` 越界时自动截短，正好够用。

# %% [markdown] slug="step-3-3"
# ### 3.3 因果掩码：右下角对齐
#
# 因果（causal）的意思是：一个位置只能看自己和更早的位置。$N_q=N_k$ 时，第 $i$ 个查询看得见 $j\le i$，**包括自己**。
#
# 推理时常有 $N_q\ne N_k$：KV cache 里已有 $N_k$ 个键，只来了最后 $N_q$ 个查询。本章规定**右下角对齐**：最后一个查询看得见全部键，即
#
# $$\text{查询 } i \text{ 看得见键 } j \iff j\le i+(N_k-N_q)$$
#
# ![三张掩码：2 个查询、5 个键时左上角对齐与右下角对齐；5 个查询、2 个键时右下角对齐，前三行全被遮住]({{raw:assets/figures/03_causal.png}})
#
# *图 2　深色格看得见。$N_q=2,N_k=5$ 时两种对齐差得很远；$N_q>N_k$ 时，右下角对齐让开头几行什么也看不见。*
#
# | 谁 | $N_q\ne N_k$ 时的对齐 | 出处 |
# |---|---|---|
# | 本章、`flash-attn` 2.1 起 | 右下角；整行看不见则输出 0 | `flash_attn_interface.py` 中 `flash_attn_func` 的说明 |
# | PyTorch SDPA 的 `is_causal=True` | 左上角 | `torch.nn.attention.bias.causal_upper_left` 的文档 |
#
# 整行都看不见时，$\ell=0$，直接除会得到 `nan`。规则：**这样的行输出 0**。
#
# 下面亲眼看看 PyTorch 的 `is_causal=True`：让 $V$ 是单位阵，输出就是权重本身。

# %% slug="alignment-demo"
from torch.nn.functional import scaled_dot_product_attention as sdpa
q, k, v = torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 5, 4), torch.eye(5)[None, None]
weights = sdpa(q, k, v, is_causal=True)[0, 0]
lower_right = torch.ones(2, 5, dtype=torch.bool).tril(5 - 2)
print("is_causal=True (upper left):\n", weights)
print("mask of this chapter (lower right):\n", sdpa(q, k, v, attn_mask=lower_right)[0, 0])

# %% [markdown] slug="step-3-4"
# ### 3.4 不许出现整张分数表
#
# 数值对了还不够，本章的目的是**不存那张表**。测试会在你的函数运行时记录每一个新建的张量（视图不算），规则是：
#
# 1. 任何新张量的元素数都小于 $N_q\times N_k$。整张的布尔掩码也算违规：掩码同样要分块造。改用 NumPy 数组或 Python 列表存整张表，也算。
# 2. 除 $K$、$V$ 的副本以外，浮点或布尔张量里不许有长度为 $N_k$ 的一维：一次算一整行分数也不行。`torch.arange` 之类的整数下标不限。
# 3. 不许调用现成的 `scaled_dot_product_attention`。
#
# 只沿键分块、不沿查询分块的写法满足这三条，也算对。
#
# 下面是记录用的工具，不用改。PyTorch 的 `TorchFunctionMode` 能看到每一次 torch 调用；返回的张量如果不是视图，就是新分配的。

# %% 记录新张量 slug="observer" nbgrader={"grade": false, "grade_id": "allocation_log", "locked": true, "schema_version": 3, "solution": false, "task": false}
import tracemalloc

from torch.overrides import TorchFunctionMode


class AllocationLog(TorchFunctionMode):
    """记下每个新建的浮点或布尔张量的形状，以及调用过的函数名。"""

    def __init__(self):
        super().__init__()
        self.shapes, self.names = set(), set()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.names.add(getattr(func, "__name__", str(func)))
        for x in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(x, torch.Tensor) and not x._is_view() and (x.is_floating_point() or x.dtype == torch.bool):
                self.shapes.add(tuple(x.shape))
        return result


# %% [markdown] slug="helper-text"
# TODO 2 的测试不该受 TODO 1 牵连。下面两个函数运行你的 `tiled_attention` 时，临时换掉 `online_softmax_update`：
# 看内存时换成什么也不算的占位版；看数值时，如果用你自己的 TODO 1 没通过，再换成“看过的分数全留着、每次从头算”的笨办法试一次。

# %% 临时换掉 online_softmax_update slug="replaced-update" nbgrader={"grade": false, "grade_id": "replaced_update", "locked": true, "schema_version": 3, "solution": false, "task": false}
def tiled_with(update, arguments):
    """用 update 代替 online_softmax_update，运行 tiled_attention(*arguments)，再换回来。"""
    names = globals()
    saved = names.get("online_softmax_update")
    names["online_softmax_update"] = update
    try:
        return tiled_attention(*arguments)
    finally:
        names["online_softmax_update"] = saved


def tiled_with_plain_update(q, k, v, block, causal):
    """数值用：更新时把看过的 scores、values 全留着，每次从头算。"""
    seen = {}  # id(acc) → (acc, 看过的 scores, 看过的 values)

    def plain_update(m, l, acc, scores, values):
        _, old_scores, old_values = seen.get(id(acc), (None, scores[:, :0], values[:0]))
        all_scores, all_values = torch.cat([old_scores, scores], 1), torch.cat([old_values, values])
        top = all_scores.amax(1)
        weights = torch.exp(all_scores - top.clamp_min(-1e30)[:, None])
        result = weights @ all_values
        seen[id(result)] = (result, all_scores, all_values)
        return top, weights.sum(1), result

    return tiled_with(plain_update, (q, k, v, block, causal))


# %% 看 tiled_attention 建了什么 slug="observe-tiled" nbgrader={"grade": false, "grade_id": "observe_tiled_attention", "locked": true, "schema_version": 3, "solution": false, "task": false}
def observe_tiled_attention(q, k, v, block, causal):
    """运行两遍 → 新张量的形状、是否用了现成的 SDPA、Python 与 NumPy 的内存峰值（字节）。不看数值。"""

    def idle_update(m, l, acc, scores, values):
        return m, l, acc

    with AllocationLog() as log:
        tiled_with(idle_update, (q, k, v, block, causal))
    tracemalloc.start()
    tiled_with(idle_update, (q, k, v, block, causal))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    used_sdpa = any("scaled_dot_product" in name for name in log.names)
    return {"shapes": sorted(log.shapes), "used_sdpa": used_sdpa, "python_bytes": peak}


# %% [markdown] slug="todo2-task"
# ### TODO 2　实现 `tiled_attention`
#
# 用时 30 分钟 ｜ 难度 ●●● ｜ 要写的：函数体，约 15 行
#
# | 输入 | 形状 | 说明 |
# |---|---|---|
# | `q` | `(Nq, d)` | 查询 |
# | `k` | `(Nk, d)` | 键 |
# | `v` | `(Nk, dv)` | 值；`dv` 可以不等于 `d` |
# | `block` | 正整数 | 块长，查询和键共用 |
# | `causal` | bool | 是否加因果掩码（右下角对齐，3.3） |
#
# 返回 `(Nq, dv)`，dtype 与 `q` 相同。遵守 3.4 的三条规则，不修改输入。建议直接用你的 `online_softmax_update`。
#
# <details><summary>提示 1：位置怎么表示？</summary>
#
# 块里第 $r$ 行的全局位置是块起点加 $r$；用 `torch.arange` 造出这一串行号，列号同理。行号写成一列（`[:, None]`）、列号写成一行（`[None, :]`），一比较就得到这一块的掩码。
# </details>
#
# <details><summary>提示 2：怎么盖住看不见的位置？</summary>
#
# `scores.masked_fill(~visible, NEG_INF)`。它返回新张量，大小只有 `(Bq, Bk)`。
# </details>
#
# <details><summary>提示 3：最后的除法</summary>
#
# $\ell=0$ 的行 `acc` 也是 0，所以把分母里的 0 换成 1 再除，结果正好是 0。
# </details>

# %% 分块注意力 slug="todo2" todo=2 stub="请先完成 TODO 2：tiled_attention 还没有实现" nbgrader={"grade": false, "grade_id": "todo2", "locked": false, "schema_version": 3, "solution": true, "task": false}
def tiled_attention(q, k, v, block, causal):
    """分块注意力。q (Nq, d)，k (Nk, d)，v (Nk, dv) → (Nq, dv)，dtype 与 q 相同。"""
    # TODO 2：外层循环取查询块，内层循环取键值块，用 online_softmax_update 累积，最后除以 l
    ### BEGIN SOLUTION
    (nq, d), (nk, dv) = q.shape, v.shape
    out = torch.zeros(nq, dv, dtype=q.dtype)
    for i in range(0, nq, block):
        q_i = q[i : i + block]  # (Bq, d)
        rows = torch.arange(i, i + q_i.shape[0])  # (Bq,)，全局位置
        m = torch.full((q_i.shape[0],), NEG_INF, dtype=q.dtype)
        l = torch.zeros(q_i.shape[0], dtype=q.dtype)
        acc = torch.zeros(q_i.shape[0], dv, dtype=q.dtype)
        for j in range(0, nk, block):
            scores = q_i @ k[j : j + block].T / math.sqrt(d)  # (Bq, Bk)
            if causal:
                cols = torch.arange(j, j + scores.shape[1])  # (Bk,)
                visible = cols[None, :] <= rows[:, None] + (nk - nq)  # (Bq, Bk)
                scores = scores.masked_fill(~visible, NEG_INF)
            m, l, acc = online_softmax_update(m, l, acc, scores, v[j : j + block])
        out[i : i + block] = acc / torch.where(l == 0, torch.ones_like(l), l)[:, None]
    return out
    ### END SOLUTION


# %% [markdown] slug="todo2-tests"
# #### TODO 2 的测试
#
# 参考答案用 float64 一次算完，你的 float32 结果与它比较。

# %% TODO 2：输出的形状与 dtype，不改输入 slug="todo2-shape" todo=2 step="3.1 两层循环" nbgrader={"grade": true, "grade_id": "todo2_shape", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
def reference_attention(q, k, v, shift=None, scale=None):
    """float64 参考：查询 i 看得见 j <= i + shift（None 表示不遮）；整行看不见输出 0。"""
    scores = q.double() @ k.double().T * (1 / math.sqrt(q.shape[1]) if scale is None else scale)
    if shift is not None:
        scores = scores.masked_fill(~torch.ones(scores.shape, dtype=torch.bool).tril(shift), NEG_INF)
    return torch.softmax(scores, dim=-1).nan_to_num(0.0) @ v.double()


def random_qkv(nq, nk, d, dv, seed=0):
    """三个可复现的 float32 张量，形状 (nq, d)、(nk, d)、(nk, dv)。"""
    rng = torch.Generator().manual_seed(seed)
    return [2 * torch.randn(rows, cols, generator=rng) for rows, cols in ((nq, d), (nk, d), (nk, dv))]


def test_tiled_shape():
    inputs, step = random_qkv(4, 6, 2, 3), "3.1 两层循环"
    for dtype in (torch.float32, torch.float64):
        out = tiled_with_plain_update(*(x.to(dtype) for x in inputs), 2, False)
        got = (tuple(out.shape), out.dtype) if isinstance(out, torch.Tensor) else type(out).__name__
        cause = "输出是 (Nq, dv)，dtype 跟 q 走；torch.zeros 不写 dtype 就是 float32"
        assert got == ((4, 3), dtype), complain("输出的形状与 dtype", ((4, 3), dtype), got, cause, step)
    before = [x.clone() for x in inputs]
    tiled_with_plain_update(*inputs, 2, True)
    same = [bool(torch.equal(a, b)) for a, b in zip(before, inputs)]
    cause = "原地缩放（例如 q *= …）改到了输入"
    assert all(same), complain("q, k, v 是否保持不变", [True] * 3, same, cause, "TODO 2 的说明")


test_tiled_shape()

# %% TODO 2：数值与缩放 1/sqrt(d) slug="todo2-scale" todo=2 step="3.2 缩放与最后一块" nbgrader={"grade": true, "grade_id": "todo2_scale", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
def check_tiled(what, arguments, want, diagnose, step, tol=1e-5):
    """先用学生自己的 TODO 1 跑；不对就换笨办法再跑一次，以那一次为准。diagnose(out) 给出可能的原因。"""
    try:
        return check_tensor(what, tiled_attention(*arguments), want, "", step, tol)
    except Exception:
        out = tiled_with_plain_update(*arguments)
    check_tensor(what, out, want, diagnose(out), step, tol)


def nearest_cause(out, candidates, otherwise):
    """candidates：{原因: 犯这个错误时的结果}；哪个与 out 相同就说哪个。"""
    for cause, wrong in candidates.items():
        if isinstance(out, torch.Tensor) and out.shape == wrong.shape and torch.allclose(out.double(), wrong, atol=1e-4):
            return cause
    return otherwise


def test_scale():
    q, k, v = random_qkv(6, 6, 4, 2, seed=1)
    scales = {"没有乘缩放": 1.0, "用了 1/d": 1 / 4, "用了 1/sqrt(dv)": 2**-0.5, "用了 1/sqrt(block)": 3**-0.5, "乘成了 sqrt(d)": 2.0}
    wrong = {f"{name}，应是 1/sqrt(d)，d = q.shape[1]": reference_attention(q, k, v, scale=x) for name, x in scales.items()}

    def diagnose(out):
        return nearest_cause(out, wrong, "分块的累积有误：检查起点、缩放，以及最后是否除以 l")

    step = "3.2 缩放与最后一块"
    check_tiled("6 个查询、6 个键、d=4、dv=2、block=3", (q, k, v, 3, False), reference_attention(q, k, v), diagnose, step)


test_scale()

# %% TODO 2：最后一块不满 slug="todo2-ragged" todo=2 step="3.2 缩放与最后一块" nbgrader={"grade": true, "grade_id": "todo2_ragged", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
def test_ragged_block():
    cause = "最后一块不满 block 时被丢掉、补了零却没有遮住，或被重复计算"
    for nq, nk, block in ((10, 10, 4), (7, 9, 2), (3, 5, 16), (5, 5, 1), (8, 11, 4)):
        q, k, v = random_qkv(nq, nk, 4, 3, seed=nq)
        what, want = f"Nq={nq}, Nk={nk}, block={block}", reference_attention(q, k, v)
        check_tiled(what, (q, k, v, block, False), want, lambda out: cause, "3.2 缩放与最后一块")


test_ragged_block()

# %% TODO 2：从不建立整张分数表 slug="todo2-memory" todo=2 step="3.4 不许出现整张分数表" nbgrader={"grade": true, "grade_id": "todo2_memory", "locked": true, "points": 8, "schema_version": 3, "solution": false, "task": false}
def test_no_score_matrix():
    step = "3.4 不许出现整张分数表"
    for causal in (False, True):
        seen = observe_tiled_attention(*random_qkv(128, 128, 2, 2, seed=4), 32, causal)
        largest = max(seen["shapes"], key=math.prod, default=())
        want, got = "每个新张量都小于 128×128 个元素", f"形状 {tuple(largest)}"
        cause = "一次算出了整张分数表，或造了整张掩码"
        assert math.prod(largest) < 128 * 128, complain(f"causal={causal}，N=128, block=32", want, got, cause, step)
        want, got = f"Python 与 NumPy 的内存峰值小于 {4 * 128 * 128} 字节", f"{seen['python_bytes']} 字节"
        cause = "用 NumPy 或列表存了整张分数表"
        assert seen["python_bytes"] < 4 * 128 * 128, complain("N=128, block=32", want, got, cause, step)
        got = "调用了 scaled_dot_product_attention"
        assert not seen["used_sdpa"], complain("自己写的分块", "不调用现成的注意力", got, "违反规则 3", step)
        seen = observe_tiled_attention(*random_qkv(8, 61, 2, 3, seed=5), 4, causal)
        rows = [tuple(s) for s in seen["shapes"] if 61 in s and sorted(s) not in ([2, 61], [3, 61])]
        cause = "内层没有按 block 分块，一次算了一整行分数或一整行掩码"
        assert not rows, complain("Nk=61, block=4", "没有长度为 61 的一维", f"形状 {rows}", cause, step)


test_no_score_matrix()

# %% TODO 2：分数到 ±1e4 slug="todo2-large" todo=2 step="2.2 换一个最大值，旧账要打折" nbgrader={"grade": true, "grade_id": "todo2_large", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
def test_large_logits():
    # d=4，缩放正好是 1/2；分数都是整数，float32 能精确表示
    q = torch.tensor([[2.0, 0, 0, 0], [-2.0, 0, 0, 0]])
    k = torch.tensor([[-1e4, 0, 0, 0], [0, 0, 0, 0], [9999, 0, 0, 0], [1e4, 0, 0, 0], [-9998, 0, 0, 0]])
    v = torch.tensor([[1.0, 2], [3, 4], [5, 6], [7, 8], [9, 10]])
    cause = "没有减去到目前为止的最大值，exp 溢出成 inf 再变成 nan；或换块时丢了旧的最大值"
    for block in (1, 2, 5):
        what, want = f"分数在 ±1e4 之间，block={block}", reference_attention(q, k, v)
        check_tiled(what, (q, k, v, block, False), want, lambda out: cause, "2.2 换一个最大值，旧账要打折")


test_large_logits()

# %% TODO 2：因果掩码包括自己 slug="todo2-causal" todo=2 step="3.3 因果掩码：右下角对齐" nbgrader={"grade": true, "grade_id": "todo2_causal", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
def test_causal():
    shifts = {"没有遮": None, "少看了自己（用了 <）": -1, "多看了一个未来位置": 1}
    for n, block in ((6, 2), (7, 3), (5, 8)):
        q, k, v = random_qkv(n, n, 4, 2, seed=n)
        wrong = {f"{name}，应是 j <= i": reference_attention(q, k, v, shift) for name, shift in shifts.items()}

        def diagnose(out, wrong=wrong):
            return nearest_cause(out, wrong, "掩码的位置要用全局下标（块起点 + 块内下标），不是块内下标")

        what, want = f"causal，N={n}, block={block}", reference_attention(q, k, v, 0)
        check_tiled(what, (q, k, v, block, True), want, diagnose, "3.3 因果掩码：右下角对齐")


test_causal()

# %% TODO 2：因果掩码遇到 Nq ≠ Nk slug="todo2-rectangular" todo=2 step="3.3 因果掩码：右下角对齐" nbgrader={"grade": true, "grade_id": "todo2_rectangular", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
def test_rectangular_causal():
    for nq, nk, block in ((2, 5, 2), (1, 9, 4), (5, 2, 2), (9, 4, 3)):
        q, k, v = random_qkv(nq, nk, 4, 3, seed=nk)
        cause = "Nq < Nk：最后一个查询应看得见全部键，条件是 j <= i + (Nk - Nq)"
        if nq > nk:
            cause = f"Nq > Nk：前 {nq - nk} 行一个键也看不见，应输出 0，不是 nan，也不是均值"
        what, want = f"causal，Nq={nq}, Nk={nk}, block={block}", reference_attention(q, k, v, nk - nq)
        check_tiled(what, (q, k, v, block, True), want, lambda out, cause=cause: cause, "3.3 因果掩码：右下角对齐")


test_rectangular_causal()

# %% TODO 2：各种形状与块长的组合 slug="todo2-hidden" todo=2 step="3.1 两层循环" nbgrader={"grade": true, "grade_id": "todo2_hidden", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
# 隐藏测试：许多形状、块长、掩码的组合；不连续的输入；较大的分数
### BEGIN HIDDEN TESTS
def test_many_shapes():
    shapes = ((1, 1, 1, 1), (13, 13, 8, 8), (4, 17, 3, 5), (17, 4, 16, 1), (1, 33, 8, 8))
    blocks = (((1, True), (64, False)), ((3, False), (5, True), (64, True)), ((1, True), (3, False), (5, True)))
    for seed, (nq, nk, d, dv) in enumerate(shapes):
        q, k, v = random_qkv(nq, nk, d, dv, seed=10 + seed)
        for block, causal in blocks[seed % 3]:
            want = reference_attention(q, k, v, nk - nq if causal else None)
            check_tiled(f"{nq, nk, d, dv, block, causal}", (q, k, v, block, causal), want, lambda out: "组合", "3.1")
    q, k, v = random_qkv(9, 9, 4, 4, seed=30)
    strided = [x.T.contiguous().T for x in (8 * q, k, v)]
    want = reference_attention(8 * q, k, v, 0)
    check_tiled("不连续", (*strided, 4, True), want, lambda out: "组合", "3.1", tol=1e-4)


test_many_shapes()
### END HIDDEN TESTS

# %% [markdown] slug="todo2-why" todo=2 tags=["instructor-only"]
# **TODO 2 讲解。** 两层循环 + 一次除法。
#
# - 切片自动截短，所以“最后一块不满”不需要分支；掩码的形状跟着 `scores.shape` 走。
# - 掩码用**全局**位置：`rows`、`cols` 从块起点数起。写成块内下标，第二块起就错。
# - 因果时，整块都在对角线右上方的键块可以直接跳过（`j > i_last + nk - nq` 时 `break`），结果不变，省一半工作。真正的 kernel 都这样做。
# - 分母里的 0 换成 1：这些行的 `acc` 本来就是 0。用 `nan_to_num` 收尾也行，但会把真正的 `nan` 一起藏掉，不推荐。
# - 只沿键分块（外层不循环）也满足规则 1、2；片上要放下全部查询，所以真实 kernel 两边都分。

# %% [markdown] slug="step-4"
# ## 第四步 数一数读写量（Counting HBM traffic）
#
# 只看单个头、$N_q=N_k=N$、$d_v=d$，数片外（HBM）读写的**元素**，最后乘每个元素的字节数。
#
# ### 4.1 标准注意力
#
# | 阶段 | 读 | 写 |
# |---|---|---|
# | $S=QK^\top/\sqrt d$ | $Q,K$：$2Nd$ | $S$：$N^2$ |
# | $P=\mathrm{softmax}(S)$ | $S$：$N^2$ | $P$：$N^2$ |
# | $O=PV$ | $P,V$：$N^2+Nd$ | $O$：$Nd$ |
#
# 合计 $4Nd+4N^2$，即 $\Theta(Nd+N^2)$。
#
# ### 4.2 分块注意力
#
# 片上能放 $M$ 个元素（`sram_elems`）。把它四等分：一份给 $Q_i$，一份给 $O_i$（就是 `acc`），一份给分数块，一份给 $K_j$ 和 $V_j$。
# $Q_i$ 有 $B\cdot d$ 个元素，所以查询块的行数是
#
# $$B=\left\lfloor\frac{M}{4d}\right\rfloor,\qquad T=\left\lceil\frac{N}{B}\right\rceil \text{ 块查询}$$
#
# （键块取 $\min(\lfloor B/2\rfloor,d)$ 行时，分数块和 $K_j,V_j$ 都不超过各自那一份；$m,\ell$ 很小，不计。）
#
# - $Q$ 只读一遍，$O$ 只写一遍：$2Nd$。
# - **每一块查询**都要把 $K$、$V$ 从头到尾读一遍：$T\cdot 2Nd$。
#
# 合计 $2Nd+2TNd$。$N\gg B$ 时 $T\approx 4Nd/M$，主项约为 $8N^2d^2/M$，即 $\Theta(N^2d^2/M)$，
# 与论文定理 2 的阶相同（[arXiv:2205.14135](https://arxiv.org/abs/2205.14135)，条件 $d\le M\le Nd$；论文先循环键块，常数与这里不同）。

# %% [markdown] slug="step-4-3"
# ### 4.3 什么时候划算
#
# 两个主项相比：$\dfrac{8N^2d^2/M}{4N^2}=\dfrac{2d^2}{M}$。只要片上容量 $M$ 明显大于 $2d^2$，就省；$d=64$ 时 $2d^2=8192$ 个元素，而 A100 每个 SM 有 192 KB 片上存储
# （论文 2.1 节），够放约 98000 个 fp16。反过来，$M$ 小、$d$ 大、$N$ 短时，反复读 $K$、$V$ 可能比存表更贵。
#
# ![标准注意力与分块注意力的显存读写量随 N 的变化，分块画了两种片上容量]({{raw:assets/figures/03_io.png}})
#
# *图 3　单个头、$d=64$、fp16。片上放得下 49152 个元素（96 KiB）时，$N=4096$ 处分块只要标准的 1/5.7；只放得下 1024 个元素时，反而是标准的 7.9 倍。阶梯来自 $T$ 的向上取整。*
#
# $B$ 至少要有 2 行，键块才分得到 1 行。所以 $M<8d$ 时认为放不下，抛 `ValueError`。

# %% [markdown] slug="todo3-task"
# ### TODO 3　实现 `attention_io_bytes`
#
# 用时 15 分钟 ｜ 难度 ●○○ ｜ 要写的：函数体，约 5 行
#
# | 输入 | 含义 |
# |---|---|
# | `n`, `d` | 序列长度 $N$、头的维度 $d$，正整数 |
# | `sram_elems` | 片上容量 $M$，单位是**元素**，不是字节 |
# | `elem_bytes` | 每个元素的字节数 |
#
# 返回 `{'standard': int, 'flash': int}`，单位字节，按 4.1 和 4.2 的常数。`sram_elems < 8 * d` 时抛 `ValueError`。全程用整数。
#
# <details><summary>提示 1：整数向上取整</summary>
#
# `-(-n // b)`，或 `(n + b - 1) // b`。用 `n / b` 再 `ceil`，数大了会有浮点误差。
# </details>
#
# <details><summary>提示 2：先手算一个</summary>
#
# $N=8,\ d=2,\ M=24$：$B=3$，$T=3$。标准 $4\cdot16+4\cdot64=320$ 个元素；分块 $2\cdot16+2\cdot3\cdot16=128$ 个元素。
# </details>

# %% 标准与分块的读写字节数 slug="todo3" todo=3 stub="请先完成 TODO 3：attention_io_bytes 还没有实现" nbgrader={"grade": false, "grade_id": "todo3", "locked": false, "schema_version": 3, "solution": true, "task": false}
def attention_io_bytes(n, d, sram_elems, elem_bytes):
    """单个头的 HBM 读写字节数 → {'standard': int, 'flash': int}；sram_elems < 8 * d 时抛 ValueError。"""
    # TODO 3：先检查容量，再求 B 和 T，按 4.1、4.2 的常数合计
    ### BEGIN SOLUTION
    if sram_elems < 8 * d:
        raise ValueError(f"片上容量 {sram_elems} 个元素太小，至少要 8 * d = {8 * d}")
    rows = sram_elems // (4 * d)  # B
    blocks = -(-n // rows)  # T，整数向上取整
    standard = 4 * n * d + 4 * n * n  # 元素
    flash = 2 * n * d + blocks * 2 * n * d  # 元素
    return {"standard": standard * elem_bytes, "flash": flash * elem_bytes}
    ### END SOLUTION


# %% [markdown] slug="todo3-tests"
# #### TODO 3 的测试

# %% TODO 3：标准注意力的字节数 slug="todo3-standard" todo=3 step="4.1 标准注意力" nbgrader={"grade": true, "grade_id": "todo3_standard", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
def check_bytes(arguments, key, want, cause, step):
    """取 attention_io_bytes(*arguments)[key]，检查类型与数值。"""
    got, what = attention_io_bytes(*arguments), f"(n, d, M, bytes) = {arguments}"
    keys = sorted(got) if isinstance(got, dict) else type(got).__name__
    assert keys == ["flash", "standard"], complain(what, ["flash", "standard"], keys, "字典的键不对", "TODO 3 的说明")
    same = isinstance(got[key], int) and got[key] == want
    assert same, complain(f"{what}，{key}", f"整数 {want}", repr(got[key]), cause, step)



def test_standard_bytes():
    cause = "S 和 P 各写一次、读一次，共 4N²；Q、K、V、O 共 4Nd；最后乘 elem_bytes"
    for arguments, want in (((8, 2, 24, 1), 320), ((8, 2, 24, 2), 640), ((5, 3, 1000, 4), 640), ((1024, 64, 8192, 2), 8912896)):
        check_bytes(arguments, "standard", want, cause, "4.1 标准注意力")


test_standard_bytes()

# %% TODO 3：分块注意力的字节数 slug="todo3-flash" todo=3 step="4.2 分块注意力" nbgrader={"grade": true, "grade_id": "todo3_flash", "locked": true, "points": 7, "schema_version": 3, "solution": false, "task": false}
def test_flash_bytes():
    cause = "Q 读一遍、O 写一遍，共 2Nd；K、V 在每一块查询里各读一遍，共 T·2Nd；B = M // (4d)"
    for arguments, want in (((12, 2, 24, 1), 240), ((12, 2, 24, 4), 960), ((64, 8, 128, 2), 34816), ((6, 1, 24, 1), 24)):
        check_bytes(arguments, "flash", want, cause, "4.2 分块注意力")


test_flash_bytes()

# %% TODO 3：块数向上取整，行数向下取整 slug="todo3-ceil" todo=3 step="4.2 分块注意力" nbgrader={"grade": true, "grade_id": "todo3_ceil", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
def test_rounding():
    n = 10**17 + 1  # 大到浮点除法不再精确
    cause = "T 要向上取整（最后一块不满也要读一遍 K、V），B 要向下取整，两处都用整数运算"
    for arguments, want in (((8, 2, 24, 1), 128), ((7, 2, 30, 1), 112), ((2, 2, 1000, 1), 16), ((n, 1, 8, 1), n * (n + 3))):
        check_bytes(arguments, "flash", want, cause, "4.2 分块注意力")


test_rounding()

# %% TODO 3：片上放不下时报错 slug="todo3-limit" todo=3 step="4.3 什么时候划算" nbgrader={"grade": true, "grade_id": "todo3_limit", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
def test_capacity():
    step = "4.3 什么时候划算"
    for arguments in ((16, 4, 31, 2), (16, 4, 0, 2)):
        try:
            got = attention_io_bytes(*arguments)
        except ValueError:
            continue
        what = f"M={arguments[2]}，小于 8d=32"
        raise AssertionError(complain(what, "ValueError", repr(got), "没有检查容量，或门槛不是 8 * d", step))
    check_bytes((16, 4, 32, 2), "flash", 2304, "M = 8d 正好放得下，不该报错；条件是 M < 8d", step)


test_capacity()

# %% TODO 3：更多规模与相互关系 slug="todo3-hidden" todo=3 step="4.2 分块注意力" nbgrader={"grade": true, "grade_id": "todo3_hidden", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
# 隐藏测试：更多的 (n, d, M, bytes)，以及“放得下全部查询时 K、V 只读一遍”
### BEGIN HIDDEN TESTS
def test_more_sizes():
    for n in (1, 2, 17, 1000, 4096):
        for d, sram, size in ((1, 9, 1), (4, 63, 2), (64, 51207, 2), (128, 1029, 4), (3, 10**6, 8)):
            blocks = -(-n // (sram // (4 * d)))
            check_bytes((n, d, sram, size), "standard", 4 * n * (n + d) * size, "常数", "4.1")
            check_bytes((n, d, sram, size), "flash", 2 * n * d * (1 + blocks) * size, "常数", "4.2")


test_more_sizes()
### END HIDDEN TESTS

# %% [markdown] slug="todo3-why" todo=3 tags=["instructor-only"]
# **TODO 3 讲解。** 关键是想清楚“谁被重复读”：查询块在外层，所以 $Q$、$O$ 各走一遍，$K$、$V$ 走 $T$ 遍。
#
# - 论文的 Algorithm 1 外层是键块，于是 $K$、$V$ 只走一遍，$Q$、$O$ 走多遍，而且 $O$ 每次都要读出、改写、写回。阶相同，常数不同；FlashAttention-2 改成了查询在外层。
# - $N\le B$ 时 $T=1$，读写量就是 $4Nd$：输入各读一遍，输出写一遍，不可能更少。
# - $10^{17}+1$ 那个用例专抓 `math.ceil(n / rows)`：浮点除法在 $2^{53}$ 以上不再精确。

# %% [markdown] slug="stop-here"
# ## 🛑 STOP HERE
#
# 先自己做完三个 TODO，跑过上面全部的测试，再往下看。卡住了，先看提示，再重读报错里写的那一步。
#
# 真的做不下去时，参考答案和讲解在这里：[教师版 notebook]({{blob:solutions/03_flash_attention/03_flash_attention.ipynb}})。看完请关掉它，凭自己的理解再写一遍。

# %% [markdown] slug="step-5"
# ## 第五步 可选实验：SDPA 的 math 与 flash（Optional experiment）
#
# PyTorch 的 `scaled_dot_product_attention`（SDPA）是一个分派器：输入合适就走融合 kernel（flash 等），不合适就退回 **math**，也就是第一步的标准写法。CPU 上也有 flash 实现，所以没有 GPU 也能做这个实验。
#
# | 问题 | 固定什么 | 观察什么 |
# |---|---|---|
# | 什么输入会退回 math？ | 每次只改一个条件 | 实际调用的算子名 |
# | flash 快多少？ | 数据、线程数、数据类型 | 配对计时、95% 区间、A/A 对照 |
# | 数值可信吗？ | float64 的参考 | 两条路径各自的最大误差 |
#
# ### 5.0 什么输入会退回 math
#
# 不靠文档，问 PyTorch 自己：`TorchDispatchMode` 能看到 SDPA 内部真正调用的算子，名字里有 `flash_attention` 就是 flash，出现 `_safe_softmax` 就是 math。
# 再限定“只许用 flash”跑一遍，走不了的话 PyTorch 会用警告说明原因。这一格很快，`dry_run` 时也会运行。

# %% 共用：导入 slug="exp-imports" tags=["experiment"] include="assets/cells/exp_imports.py"

# %% 实际走了哪条路 slug="exp-path" tags=["experiment"]
import warnings

from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode


class OperatorLog(TorchDispatchMode):
    """记下真正执行的算子名。"""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def path_of(call):
    """运行 call()，从算子名看 SDPA 走了哪条路 → 'flash'、'efficient'、'cudnn'、'math' 或 'unknown'。"""
    with torch.no_grad(), OperatorLog() as log:
        call()
    names = " ".join(log.names)
    signs = {"flash": "flash_attention", "efficient": "efficient_attention", "cudnn": "cudnn_attention", "math": "softmax"}
    return next((path for path, sign in signs.items() if sign in names), "unknown")


# %% 为什么走不了 flash slug="exp-reason" tags=["experiment"]
def why_not_flash(call):
    """只许用 flash 时 PyTorch 给的理由；走得了就是空串。"""
    with warnings.catch_warnings(record=True) as caught, torch.no_grad():
        warnings.simplefilter("always")
        try:
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                call()
        except RuntimeError:
            texts = [str(item.message).split("(Triggered")[0].strip() for item in caught]
            return next((text for text in texts if not text.startswith("Flash attention kernel not used")), "no reason given")
    return ""


# %% 逐个条件地试 slug="exp-fallback" tags=["experiment", "nbval-ignore-output"]
x = torch.randn(1, 4, 64, 32)  # (batch, heads, N, d)，CPU float32
last_stride = x.transpose(2, 3).contiguous().transpose(2, 3)  # 同样的数，最后一维的 stride 不是 1
probes = {
    "plain": lambda: sdpa(x, x, x),
    "causal": lambda: sdpa(x, x, x, is_causal=True),
    "attn_mask": lambda: sdpa(x, x, x, attn_mask=torch.ones(64, 64, dtype=torch.bool)),
    "decode, Nq=1": lambda: sdpa(x[:, :, :1], x, x),
    "dropout_p=0.1": lambda: sdpa(x, x, x, dropout_p=0.1),
    "3-D input": lambda: sdpa(x[0], x[0], x[0]),
    "d=32, dv=16": lambda: sdpa(x, x, x[..., :16].contiguous()),
    "last stride not 1": lambda: sdpa(last_stride, x, x),
}
for name, call in probes.items():
    print(f"{name:<18} {path_of(call):<6} {why_not_flash(call)}")

# %% [markdown] slug="exp-fallback-read"
# CPU、torch 2.13 上，前四种走 flash，后四种退回 math：有 dropout、输入不是四维、$q/k$ 与 $v$ 的末维不同、末维 stride 不是 1。
#
# 最值得警惕的是最后两种：形状看起来没错，结果也对，只是悄悄变慢。别的版本、别的设备条件不同，以你这一格的输出为准。
#
# ### 5.1 设置
#
# `dry_run` 什么也不测，只说怎样打开；`real_cpu` 用 CPU 测，float32、单线程，总共约 20 秒；`real_gpu` 用 CUDA 测，float16。

# %% 实验设置 slug="exp-settings" tags=["settings"]
RUN_MODE = "dry_run"  # 'dry_run'、'real_cpu' 或 'real_gpu'
RUN_LABEL = "default"
PROFILE_ID = "INF-CUDA-MECHANISM"
GPU_RESULT_PATH = f"benchmarks/results/inf_flash_attention_sdpa_{RUN_LABEL}.json"
GPU_DTYPE = "float16"  # real_cpu 一律用 float32
GPU_TOKEN_COUNTS = [1, 128, 1024]
GPU_HEADS, GPU_HEAD_DIM = 4, 64
GPU_WARMUP = 5
GPU_REPEATS = 30  # 每轮的对数
GPU_ROUNDS = 4
GPU_ATOL = GPU_RTOL = 2e-2

# %% [markdown] slug="exp-method"
# ### 5.2 测量并保存
#
# 方法与第 4 章相同（单元格共用）：math 与 flash 配对、次序随机；另测 math 对自己的 A/A 对照，得出噪声带；
# 加速比 = math 中位数 / flash 中位数，区间由配对 bootstrap 得到，**整个区间都越过噪声带**才判 `faster`。
#
# 一次短调用只有几微秒，切换后端的开销会盖过它。所以每个样本进入一次后端、连续调用若干次，再折算成单次（`calls_per_sample`）。
# 掩码关着：flash 会跳过因果掩码右上角的块，那样省下的就不只是搬运。

# %% 共用：统计 slug="exp-statistics" tags=["experiment"] include="assets/cells/exp_statistics.py"

# %% 共用：区间与噪声带 slug="exp-verdict" tags=["experiment"] include="assets/cells/exp_verdict.py"

# %% 共用：同步与线程 slug="exp-timing" tags=["experiment"] include="assets/cells/exp_timing.py"

# %% 共用：成对计时 slug="exp-pairs" tags=["experiment"] include="assets/cells/exp_pairs.py"

# %% 共用：配对测量 slug="exp-measure" tags=["experiment"] include="assets/cells/exp_measure.py"

# %% 共用：数值误差 slug="exp-numerics" tags=["experiment"] include="assets/cells/exp_numerics.py"

# %% 共用：硬件说明 slug="exp-hardware" tags=["experiment"] include="assets/cells/exp_hardware.py"

# %% 共用：运行模式 slug="exp-mode" tags=["experiment"] include="assets/cells/exp_mode.py"

# %% 共用：安全地写文件 slug="exp-file" tags=["experiment"] include="assets/cells/exp_file.py"

# %% 一个样本 slug="exp-calls" tags=["experiment"]
BACKENDS = {"math": SDPBackend.MATH, "flash": SDPBackend.FLASH_ATTENTION}


def repeated_call(qkv, backend, calls):
    """→ 无参函数：进入 backend 一次，连续算 calls 次 SDPA，返回最后的输出。"""

    def run():
        with sdpa_kernel(backend):
            for _ in range(calls):
                out = sdpa(*qkv)
        return out

    return run


def per_call(stats, calls):
    """把一个样本（calls 次调用）的统计折算成单次，ms。"""
    return {key: [x / calls for x in value] if isinstance(value, list) else value / calls for key, value in stats.items()}


# %% 一个形状的测量 slug="exp-row" tags=["experiment"]
def measure_tokens(tokens, plan):
    """math 与 flash 在 N = tokens 时的比较 → candidate_matrix 里的一行。"""
    rng, calls = torch.Generator().manual_seed(plan["seed"]), max(1, 256 // tokens)
    shape, place = (1, plan["heads"], tokens, plan["head_dim"]), (plan["device"], getattr(torch, plan["dtype"]))
    qkv = [torch.randn(shape, generator=rng).to(*place) for _ in range(3)]
    runs = {name: repeated_call(qkv, backend, calls) for name, backend in BACKENDS.items()}
    observed = {name: path_of(run) for name, run in runs.items()}
    outputs = {name: run() for name, run in runs.items()}
    with sdpa_kernel(SDPBackend.MATH):
        exact = sdpa(*(x.double() for x in qkv))  # float64 参考
    pair = measure_pair(runs["math"], runs["flash"], plan["device"], plan["warmup"], plan["repeats"], plan["rounds"], plan["seed"])
    close = torch.allclose(outputs["flash"], outputs["math"], atol=plan["atol"], rtol=plan["rtol"])
    errors = {name: max_abs_error(out, exact) for name, out in outputs.items()}
    row = {"token_count": tokens, "output_close": close, "observed_path": observed, "max_error": errors, "calls_per_sample": calls}
    return row | {"math": per_call(pair.pop("a"), calls), "flash": per_call(pair.pop("b"), calls)} | pair


# %% 整份结果 slug="exp-report" tags=["experiment"]
def summarize(rows, failures):
    """→ (summary, decision)。接受的条件：没有失败、数值都对、走的路与要求一致、至少一个 faster、slower 不比 faster 多。"""
    shapes = {verdict: [row["token_count"] for row in rows if row["verdict"] == verdict] for verdict in ("faster", "tie", "slower")}
    correct = bool(rows) and not failures and all(row["output_close"] for row in rows)
    confirmed = bool(rows) and all(row["observed_path"] == {"math": "math", "flash": "flash"} for row in rows)
    good = correct and confirmed and shapes["faster"] and len(shapes["slower"]) <= len(shapes["faster"])
    summary = {f"{verdict}_token_counts": tokens for verdict, tokens in shapes.items()}
    summary |= {"correctness_passed": correct, "paths_confirmed": confirmed, "total_cases": len(rows) + len(failures)}
    return summary, "accept_for_selected_shapes" if good else "tune_or_fallback"


def run_attention_experiment(plan):
    """逐个形状测量 → 结果（dict）。一个形状失败，不影响其他形状。"""
    rows, failures = [], []
    with one_cpu_thread():
        for tokens in plan["token_counts"]:
            try:
                rows.append(measure_tokens(tokens, plan))
            except RuntimeError as error:  # 显存不足、这台机器没有 flash kernel 等
                failures.append({"token_count": tokens, "type": type(error).__name__, "message": str(error)[:300] or "no message"})
    summary, decision = summarize(rows, failures)
    keys = ("token_counts", "heads", "head_dim", "dtype", "warmup", "repeats", "rounds", "atol", "rtol", "seed")
    head = {"schema_version": "attention-backends/v1", "semantic_id": "INF-FLASH-ATTENTION"}
    head |= {"profile_id": plan["profile_id"], "run_label": plan["run_label"], "workload": {key: plan[key] for key in keys}}
    head |= {"hardware": describe_hardware(plan["device"]), "measurement": measurement_notes(plan["device"])}
    tail = {"summary": summary, "failure": failures or None, "evidence_level": "local_mechanism_benchmark", "decision": decision}
    return head | {"environment": describe_environment(), "candidate_matrix": rows} | tail


# %% 运行（默认 dry_run） slug="exp-run" tags=["experiment", "nbval-ignore-output"]
device = experiment_device(RUN_MODE, PROFILE_ID)
if device is None:
    print("dry_run：什么也不测。把 5.1 的 RUN_MODE 改成 'real_cpu'（约 20 秒）或 'real_gpu'，再从 5.1 起重新运行。")
else:
    path = result_path(GPU_RESULT_PATH, device)
    check_label(path, RUN_LABEL)
    plan = {"device": device, "dtype": GPU_DTYPE if device == "cuda" else "float32", "token_counts": GPU_TOKEN_COUNTS}
    plan |= {"heads": GPU_HEADS, "head_dim": GPU_HEAD_DIM, "warmup": GPU_WARMUP, "repeats": GPU_REPEATS, "rounds": GPU_ROUNDS}
    plan |= {"atol": GPU_ATOL, "rtol": GPU_RTOL, "seed": 0, "profile_id": PROFILE_ID, "run_label": RUN_LABEL}
    save_report(path, run_attention_experiment(plan))

# %% [markdown] slug="exp-reader-text"
# ### 5.3 读结果

# %% 读 JSON slug="exp-reader" tags=["reader", "nbval-ignore-output"]
def load_attention_report():
    """先找 GPU 的结果，再找 CPU 的 → (路径, 结果)；都没有就是 (GPU 的路径, None)。"""
    paths = [Path(result_path(GPU_RESULT_PATH, device)) for device in ("cuda", "cpu")]
    found = [path for path in paths if path.exists()]
    if not found:
        return paths[0], None
    newest = max(found, key=lambda path: path.stat().st_mtime)
    return newest, json.loads(newest.read_text(encoding="utf-8"))


path, report = load_attention_report()
if report is None:
    print(f"还没有结果：{path}（CPU 的结果名末尾是 _cpu.json）。请先运行 5.2。")
else:
    for key in ("workload", "hardware", "summary", "failure", "evidence_level", "decision"):
        print(f"{key}: {report[key]}")
    for row in report["candidate_matrix"]:
        medians = f"math {row['math']['median_ms']:.4f} ms, flash {row['flash']['median_ms']:.4f} ms"
        print(f"N={row['token_count']:<5} {medians}, speedup {row['speedup']:.4f}, {row['verdict']}, path {row['observed_path']['flash']}")

# %% [markdown] slug="exp-plot-text"
# ### 5.4 画图
#
# 只读 JSON，不测量。没有你自己的结果时，画随本章附带的样例，标题里写着它是在什么机器上录的。

# %% 随章附带的样例 slug="exp-sample" tags=["plot"] sample="assets/samples/03_flash_attention_cpu.json"
import json

# %% 两张图 slug="exp-plot-parts" tags=["plot"]
def draw_attention_times(axis, rows):
    """左图：两条路径的中位数（实线）与 P95（点线），ms，双对数轴。"""
    tokens = [row["token_count"] for row in rows]
    for path, color, marker in (("math", "#b34700", "o"), ("flash", "#003f7f", "s")):
        for key, style, fill in (("median_ms", "-", color), ("p95_ms", ":", "white")):
            label = f"{path} {key.removesuffix('_ms')}"
            axis.plot(tokens, [row[path][key] for row in rows], style, color=color, marker=marker, markerfacecolor=fill, label=label)
    axis.set(xlabel="tokens N", ylabel="time per call (ms)", xscale="log", yscale="log", title="SDPA: math and flash")


def draw_attention_speedup(axis, rows):
    """右图：加速比、95% 区间、噪声带；判为 faster 的点画星号。"""
    tokens, tops = [row["token_count"] for row in rows], [1 + row["noise_band"] for row in rows]
    axis.fill_between(tokens, [1 / top for top in tops], tops, color="0.85", label="noise band")
    error = [[abs(row["speedup"] - row["speedup_ci95"][side]) for row in rows] for side in (0, 1)]
    axis.errorbar(tokens, [row["speedup"] for row in rows], yerr=error, color="0.2", marker="o", capsize=4, label="math / flash, 95% CI")
    faster = [row for row in rows if row["verdict"] == "faster"]
    axis.plot([row["token_count"] for row in faster], [row["speedup"] for row in faster], "*", color="#003f7f", markersize=15, label="faster")
    axis.axhline(1, color="0.4", linestyle="--")
    axis.set(xlabel="tokens N", ylabel="speed-up", xscale="log", title="Speed-up")


# %% 画图 slug="exp-plot" tags=["plot", "nbval-ignore-output"]
def plot_attention(report, note=""):
    """一份结果 → figure。"""
    fig, axes = plt.subplots(1, 2, figsize=(11, 4.2), facecolor="white")
    tokens = report["workload"]["token_counts"]
    for axis, draw in zip(axes, (draw_attention_times, draw_attention_speedup)):
        draw(axis, report["candidate_matrix"])
        axis.set_facecolor("white")
        axis.set_xticks(tokens, [str(n) for n in tokens])
        axis.minorticks_off()
        axis.legend(frameon=False)
    work, hardware = report["workload"], report["hardware"]
    shape = f"{work['heads']} heads, d={work['head_dim']}, {work['dtype']}"
    fig.suptitle(f"{note}{shape}\n{hardware['device']}, torch {hardware['torch_version']}")
    fig.tight_layout()
    return fig


path, report = load_attention_report()
if report is None:
    print("没有你自己的结果，下面画的是录好的样例，不是你的机器。")
figure = plot_attention(report or RECORDED_SAMPLE, "" if report else "Recorded sample, not your machine: ")
plt.show()

# %% [markdown] slug="exp-interpret"
# *图 4　左：两条路径的单次时间；右：加速比与区间。灰带是 A/A 对照给出的噪声带。*
#
# ### 5.5 怎样解释，下一步做什么
#
# | 你看到的 | 可以下的结论 | 下一步 |
# |---|---|---|
# | `faster`，且 `observed_path` 是 `flash` | 这台机器、这个形状上 flash 确实更快 | 在真实模型的形状上复测 |
# | `tie` | 差别在噪声之内 | 不为它改代码；看更长的 $N$ |
# | `slower` | 这个形状上别强求 flash | 交给 SDPA 自动选，或换形状 |
# | `observed_path` 不是 `flash` | 测的根本不是 flash | 用 5.0 的办法找出哪个条件不满足 |
# | `failure` 不是空 | 结论不成立 | 按 `message` 修好再测 |
#
# 三点提醒：
#
# - 样例里 $N=1$ 也快。那里没有 $N^2$ 的表可省，差别来自 math 要依次调用好几个算子，flash 只调用一个。**同样是“快”，原因可以不同。**
# - CPU 没有可编程的 SRAM，分块利用的是缓存；第四步的字节公式不能直接套。
# - 这是局部机制的测量（`local_mechanism_benchmark`），不是模型端到端的加速。

# %% [markdown] slug="questions"
# ## 思考题（Questions）
#
# 1. 折扣 $\alpha$ 何时等于 1？如果分数从大到小排好序，在线 softmax 能省掉什么？
# 2. 两段各自算好的状态 $(m_1,\ell_1,a_1)$ 与 $(m_2,\ell_2,a_2)$ 怎样合并？合并满足结合律吗？（这就是 Flash-Decoding 沿键并行的依据。）
# 3. 因果掩码下，哪些键块可以整块跳过？$N_q=N_k=N$、块长 $B$ 时，跳过后还剩几成工作？
# 4. 解码时 $N_q=1$。套用第四步的数法，标准与分块各读写多少？分块还省吗？
# 5. $d=256$、$M=49152$ 时，$2d^2/M$ 是多少？与 $d=64$ 相比说明什么？
# 6. 规则 1 允许“只沿键分块”。为什么 GPU kernel 还要沿查询分块？
#
# <details><summary>参考思路</summary>
#
# 1. 新块没有更大的分数时。排好序则只有第一块会更新 $m$，以后 $\alpha$ 恒为 1——但排序本身更贵。
# 2. $m=\max(m_1,m_2)$，$\ell=\ell_1e^{m_1-m}+\ell_2e^{m_2-m}$，$a$ 同理。满足结合律（忽略舍入），所以可以并行归约。
# 3. 整块在对角线右上方的。块数 $T=N/B$ 时剩 $T(T+1)/2$ 块，占 $\frac12(1+1/T)$。
# 4. 标准：$Q,O$ 各 $d$，$K,V$ 各 $Nd$，$S,P$ 读写共 $4N$；分块省掉 $4N$。$d=64$ 时 $2Nd=128N$ 是大头，省得很少：解码慢在读 KV cache。
# 5. $131072/49152\approx2.7>1$：主项反而更大。头的维度越大，分块越吃亏。
# 6. 片上放不下全部查询的 $Q_i$ 和 `acc`；而且不同的查询块可以交给不同的 SM 并行。
#
# </details>

# %% [markdown] slug="mistakes"
# ## 常见误区（Common mistakes）
#
# | 误区 | 事实 |
# |---|---|
# | FlashAttention 是近似算法 | 它是**精确**的：数学上与标准注意力相同，只有浮点舍入的差别 |
# | 它省的是计算量 | 浮点运算次数没有变少，还多了折扣；省的是 HBM 读写 |
# | 每一块算完就除以 $\ell$ | 中途除了，下一块还得乘回来；最后除一次就够 |
# | 先减去**这一块**的最大值就行 | 要减**到目前为止**的最大值，旧账还要打折 |
# | 全遮住的行无所谓 | $-\infty-(-\infty)$ 是 `nan`，一行 `nan` 会污染后面所有层 |
# | `is_causal=True` 在哪里都一样 | $N_q\ne N_k$ 时 PyTorch 左上角对齐，`flash-attn` 右下角对齐 |
# | 调用了 SDPA 就用上了 flash | 输入不合条件会悄悄退回 math；看算子名才算数 |
# | 两条路径差 $10^{-7}$ 说明有 bug | 求和次序不同，float32 的舍入本来就不同；要跟 float64 参考比 |

# %% [markdown] slug="summary-text"
# ## 总测试（Summary）
#
# 三个 TODO 的可见测试一起再跑一遍。不计分。

# %% 总测试 slug="summary" tags=["summary"] nbgrader={"grade": false, "grade_id": "summary", "locked": true, "schema_version": 3, "solution": false, "task": false}
def test_flash_attention():
    for test in (test_update_shape, test_single_block, test_rescale, test_running_maximum, test_masked_rows):
        test()
    for test in (test_tiled_shape, test_scale, test_ragged_block, test_no_score_matrix, test_large_logits):
        test()
    for test in (test_causal, test_rectangular_causal, test_standard_bytes, test_flash_bytes, test_rounding, test_capacity):
        test()
    print("✅ 三个 TODO 的可见测试全部通过：在线 softmax、分块注意力、读写字节数都符合规则。")


test_flash_attention()

# %% [markdown] slug="links"
# ## 小结与链接（Summary and links）
#
# - 注意力慢在搬运 $N\times N$ 的中间表；公式不变，换个次序就不用存它。
# - 在线 softmax 只记 $(m,\ell,a)$；换最大值时旧账打折，最后除一次。
# - 读写量从 $\Theta(Nd+N^2)$ 变成 $\Theta(N^2d^2/M)$；$M$ 明显大于 $2d^2$ 才划算。
# - “调用了 SDPA”和“flash 跑了”是两句话，中间要有证据。
#
# **下一步**：{{chapter:04_execution_dispatch|第 4 章 推理融合与后端分派}}。那里把“输入合适就走快路径，不合适就带着原因回退”写成一个分派器。
#
# **资料来源**
#
# 1. Dao 等，*FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness*，[arXiv:2205.14135](https://arxiv.org/abs/2205.14135)：算法、定理 2、A100 的 SRAM 容量。
# 2. Dao，*FlashAttention-2*，[arXiv:2307.08691](https://arxiv.org/abs/2307.08691)：查询在外层、除法推迟到最后。
# 3. Milakov、Gimelshein，*Online normalizer calculation for softmax*，[arXiv:1805.02867](https://arxiv.org/abs/1805.02867)：在线 softmax。
# 4. Vaswani 等，*Attention Is All You Need*，[arXiv:1706.03762](https://arxiv.org/abs/1706.03762)：缩放 $1/\sqrt d$ 的理由。
# 5. [`flash_attn_interface.py`](https://github.com/Dao-AILab/flash-attention/blob/main/flash_attn/flash_attn_interface.py)：右下角对齐；整行看不见时输出 0。
# 6. PyTorch 文档 [`causal_upper_left`](https://docs.pytorch.org/docs/stable/generated/torch.nn.attention.bias.causal_upper_left.html)：与 SDPA 的 `is_causal=True` 等价，左上角对齐。
# 7. PyTorch 文档 [`scaled_dot_product_attention`](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html)、[`sdpa_kernel`](https://docs.pytorch.org/docs/stable/generated/torch.nn.attention.sdpa_kernel.html)：可选的后端与限定后端的办法。
# 8. 退回 math 的条件、对齐方式：由本章 3.3 与 5.0 的单元格在 torch 2.13（CPU）上运行得到。
