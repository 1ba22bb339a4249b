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
# # INF-EXECUTION-DISPATCH. Inference Fusion and Backend Dispatch | 推理融合与后端分派
#
# [![在 Colab 打开本章](https://colab.research.google.com/assets/colab-badge.svg)]({{colab}}) [![在 ModelScope 打开本章](https://img.shields.io/badge/Open%20in-ModelScope-624aff)]({{modelscope}})
#
# **难度**：Medium ｜ **环境**：CPU-first + 可选单卡 GPU ｜ **标签**：推理优化、融合、执行分派、回退 ｜ **预计用时**：100 分钟（第一至三步 25，三个 TODO 60，其余 15；第五步的实验另计）｜ 版本 {{version}}
#
# 模型编译成功了，profiler 里却找不到你要的融合 kernel。原因在哪里？可能是图里没有这个模式，可能是后端不收这个输入，也可能它收了、却退回了 eager。本章把这条路拆成几段，让每一段都能单独检查。
#
# **学完本章，你能够**
#
# 1. 在一串有序的算子里找出融合候选（fusion candidate），并说清按什么规则找；
# 2. 逐条说明一个后端（backend）为什么接受、为什么拒绝一个候选；
# 3. 在几个后端之间按优先级分派（dispatch），都不行时回退（fallback）到 eager，并留下全部原因；
# 4. 分清两句话：“它编译了”和“某个融合 kernel 真的跑了”。
#
# **先修**：{{chapter:02_operator_fusion|第 2 章 算子融合入门}}、{{chapter:03_flash_attention|第 3 章 FlashAttention 模拟}}。会 Python 的列表、字典和 `sorted` 就能做练习；第一至四步不需要 GPU，也不需要任何第三方包。
#
# **上一章**：{{chapter:03_flash_attention|第 3 章 FlashAttention 模拟}} ｜ **下一章**：{{chapter:05_graph_capture|第 5 章 图捕获}}
#
# **怎样用这个 notebook**：从上到下读，从上到下运行。遇到 TODO，把 `raise NotImplementedError(...)` 那一行换成你的代码，再运行它后面的测试。没做的 TODO 会在测试里报出自己的编号；这不是错误，是提醒。

# %% [markdown] slug="step-1"
# ## 第一步 从模型图到真正执行的路径（From model graph to executed path）
#
# “这个模型用了融合”是一句含糊的话。从写下模型到 GPU 上跑起一个 kernel，中间有四段，每一段都有自己的对象和自己的问题。
#
# | 阶段（stage） | 主要对象 | 要回答的问题 |
# |---|---|---|
# | 1. 模型语义（model semantics） | attention、MLP、norm、sampling | 哪些算子依赖哪些算子？ |
# | 2. 图与模式（graph and patterns） | 节点次序、shape、dtype | 这一段是不是一个稳定的候选？ |
# | 3. 能力门（capability gate） | 设备、后端、kernel 的限制 | 这一个输入能走快路径吗？ |
# | 4. 执行与证据（execution and evidence） | 优化路径、eager、回退 | 实际跑了什么，为什么？ |
#
# ![四段路径：模型语义、图与模式、能力门、执行与证据；被拒绝的候选带着原因走 eager 回退路径]({{raw:assets/figures/04_four_stages.png}})
#
# *图 1　四段路径。上面一行是快路径；能力门不放行时，候选走下面的 eager，并且带着拒绝原因。*
#
# 两点要记住：
#
# - **被拒绝的候选必须回退，而且必须留下原因。** 没有回退，程序就断了；没有原因，就没有人知道该改精度、改长度，还是换后端。
# - **前一段成立，不能推出后一段成立。** 图里有模式，不等于后端收；后端收，不等于 kernel 真的跑了。
#
# PyTorch 里就有这样的例子。`torch.compile` 遇到不支持的代码时不会崩溃，只是失去一次优化机会<sup>[1]</sup>；同一段代码的编译结果到了 `recompile_limit`（默认 8）份，再遇到新的输入就退回 eager<sup>[2]</sup>。`scaled_dot_product_attention`（SDPA）的每一种融合实现都有自己的输入限制；你指定了某一种而它用不了时，PyTorch 会用警告说明原因<sup>[3]</sup>。

# %% [markdown] slug="step-2"
# ## 第二步 哪些模式值得当候选（Which patterns are worth a candidate）
#
# LLM 推理里常见的候选有四种。本章的四个模式就来自这张表。
#
# | 模式（pattern） | 可能省下什么 | 常见的限制 |
# |---|---|---|
# | QKV 投影 + RoPE | 中间结果的写回，kernel 启动（launch）次数 | head 的布局、位置编码的方式 |
# | residual add + RMSNorm | residual 的读写 | dtype、hidden size、数值精度 |
# | Linear + SiLU + multiply（SwiGLU） | 中间激活（intermediate activation） | shape、寄存器、量化格式 |
# | logits + sampling | 一串很小的 kernel 的启动 | 采样策略会变、随机数状态 |
#
# **融合省的是什么。** 主要是两样：启动次数，和中间结果在显存里的往返。对 Transformer 训练的测量表明，主要的瓶颈是数据移动<sup>[4]</sup>；推理里的逐元素算子同样读写多、计算少。以 SwiGLU 的 $\mathrm{silu}(g)\odot u$ 为例（$g,u$ 都是 $T\times I$）：
#
# - 分开算：SiLU 读 $g$、写 $s$；乘法读 $s$、读 $u$、写 $y$。一共 5 个 $T\times I$。
# - 合起来算：读 $g$、读 $u$、写 $y$。一共 3 个 $T\times I$。
#
# residual add + RMSNorm 就没有这么多：相加的结果 $h$ 后面的残差还要用，融合后也得写出来，所以是从 5 个 $T\times H$ 降到 4 个（RMSNorm 的权重很小，略去）。下面用数字看一眼。

# %% 访存量 slug="traffic-example"
def traffic_mib(tensors, rows, width, element_bytes=2):
    """读写 tensors 个 (rows, width) 的张量，共多少 MiB；element_bytes=2 即 float16。"""
    return tensors * rows * width * element_bytes / 2**20


for name, unfused, fused, width in [('silu * up', 5, 3, 11008), ('residual add + RMSNorm', 5, 4, 4096)]:
    before, after = traffic_mib(unfused, 256, width), traffic_mib(fused, 256, width)
    print(f'{name:24s} T=256: {before:6.1f} MiB -> {after:6.1f} MiB ({1 - after / before:.0%} less)')

# %% [markdown] slug="step-2-costs"
# **融合要付出什么。** 更大的 kernel 占更多寄存器（register pressure），占用率可能下降；编译器对它的限制更多；出了数值问题也更难查。vLLM 的文档给每一种融合都标了适用条件，并提醒：加速多少取决于模型、batch 和硬件，要在自己的场景里开、关各测一次<sup>[5]</sup>。
#
# 所以：**候选只是“可能值得”，它不保证任何事。** 能不能走，下一步的能力门来定；快不快，要测。

# %% [markdown] slug="step-3"
# ## 第三步 能力门怎样判断（How the gate decides）
#
# 对每一个（候选、输入、后端）的组合，能力门逐项检查：
#
# | 门（gate） | 通过的条件 | 不通过时怎么办 |
# |---|---|---|
# | 模式（pattern） | 后端声明了这个模式 | 换下一个后端 |
# | dtype / 设备（device） | kernel 和硬件都支持 | 换精度、换路径，或回退 |
# | 形状（shape） | 在 kernel 的范围内 | 重新编译、分桶（bucket），或回退 |
# | 动态形状（dynamic shape） | 后端能处理会变的形状 | 固定形状、切图，或走 eager |
# | 执行证据（execution evidence） | 捕获和 profile 都与目标路径一致 | 只保留“有能力”这一句，不说“跑了” |
#
# ![五道能力门依次检查；每一道的失败原因都被收集，最后一起判断，而不是遇到第一个失败就停]({{raw:assets/figures/04_gate_flow.png}})
#
# *图 2　五道门各自独立：失败的原因全部收集，最后才得出 supported。*
#
# 表的前四行在执行之前就能判断，练习里把它们拆成五道门（dtype 和设备各一道）。最后一行要等执行之后才有，第五步和{{chapter:07_execution_evidence|第 7 章 执行证据}}讲它。
#
# **“装上了”不等于“能跑这个候选”。** 真实的例子：vLLM 的 `QKNormRoPEFusionPass` 先看 dtype，不是 bfloat16 或 float16 就不启用，并在日志里写下原因<sup>[6]</sup>。包装得好好的，这个输入就是走不了。
#
# **为什么要收集全部原因，而不是遇到第一个就停？** 假如只报“dtype 不对”，你换了 dtype 再跑一次，它又报“太长”；再改、再跑……一次报全，只改一次。

# %% [markdown] slug="step-4"
# ## 第四步 练习：候选、能力门、分派（The exercise）
#
# 三个函数，处理三种普通的 Python 数据。没有张量，没有计时；同样的输入永远得到同样的输出。
#
# | 函数 | 机制 | 约束 | 测试里的证据 |
# |---|---|---|---|
# | `identify_fusion_candidates(ops)` | 贪心扫描：最左、最长 | 连续、同序、不重用节点 | 互相重叠的模式表、多层重复、边界 |
# | `evaluate_backend_capability(candidate, workload, backend)` | 五道独立的门 | 缺了就是不支持；原因要全 | 每道门单独失败、两两失败、字段缺失 |
# | `dispatch_candidate(candidate, workload, backends)` | 按优先级取第一个 | 没有就回退；被拒的都留原因 | 两个都可用、都不可用、空列表 |
#
# **数据的样子**
#
# | 名字 | 结构 |
# |---|---|
# | 候选 candidate | `{'pattern': str, 'start': int, 'end': int, 'ops': list[str]}`，`end` 不含在内 |
# | 输入 workload | `{'dtype': str, 'device': str, 'seq_len': int, 'dynamic_shape': bool}` |
# | 后端 backend | `{'name': str, 'patterns': list, 'dtypes': list, 'devices': list, 'max_seq_len': int, 'supports_dynamic_shape': bool}` |
#
# 下面是本章的模式表：键是有次序的算子元组，值是模式名。

# %% 模式表 nbgrader={"grade": false, "grade_id": "fusion_patterns", "locked": true, "schema_version": 3, "solution": false, "task": false}
from typing import Dict, List, Sequence, Tuple

FUSION_PATTERNS: Dict[Tuple[str, ...], str] = {
    ('linear_qkv', 'rope'): 'qkv_rope',
    ('residual_add', 'rms_norm'): 'residual_rmsnorm',
    ('linear_gate', 'silu', 'multiply'): 'swiglu',
    ('logits', 'temperature', 'top_k'): 'sampling_chain',
}

# %% [markdown] slug="todo1-text"
# ### 4.1 TODO 1：找候选（identify fusion candidates）
#
# 用时 20 分钟 ｜ 难度 ●●○ ｜ 要写的：一行，给 `ordered_patterns` 赋值
#
# 输入是一串有序的算子 `ops`，输出是候选的列表，按 `start` 从小到大。扫描的循环已经给出：它在当前位置按 `ordered_patterns` 的次序逐个试，**试中第一个就收下**。所以你给的次序，决定了同一位置上谁先被选中。
#
# **规则**（测试只依据这几条）
#
# 1. **最左优先（leftmost）**：从位置 0 向右扫。当前位置有匹配就收下，不为后面“也许更划算”的组合让路。因此结果不一定是覆盖节点最多的分法。
# 2. **同一位置取最长（longest）**：长，指算子的**个数**多。它与模式名的长短、算子名的长短、声明的先后都无关。短模式也要留着：长的不匹配时，轮到它。
# 3. **节点只用一次**：收下 `[start, end)` 之后，从 `end` 接着扫。同一个模式可以在别处再次出现，每一处都算。
# 4. **连续、同序、逐个相等**：中间不能隔着别的算子；末尾不够长就不算；不从末尾绕回开头。
# 5. **没有候选就返回 `[]`**，不是 `None`。`ops` 为空也一样。
# 6. **调用时才读 `FUSION_PATTERNS`**：后来登记的模式也要算。两个不同的模式可以有同一个名字，都有效。
# 7. **只读**：不改 `ops`，不改 `FUSION_PATTERNS`；同样的输入给同样的结果。
#
# 空模式 `()` 是登记错误：给出的扫描会抛 `ValueError`，不会死循环。等长的模式不可能在同一位置同时匹配，所以它们之间的先后不影响结果。
#
# ![在六个算子 a b c d a b 上扫描：位置 0 上 ab 和 abc 都匹配，取更长的 abc；位置 3 的 d 没有匹配，右移一格；位置 4 上取 ab]({{raw:assets/figures/04_leftmost_longest.png}})
#
# *图 3　模式表 `{ab, abc, cd}`，输入 `a b c d a b`。位置 0 上取长的 `abc`；`c` 已用掉，所以 `cd` 不再匹配；位置 4 上轮到 `ab`。*
#
# 本章的四个模式互不重叠，次序写错也看不出来。所以测试会换上重叠的教学模式表。
#
# > “最长优先”是本章的约定。真实系统用明确的优先级：例如 vLLM 的代码特意先登记带 residual 的模式、再登记普通的 RMSNorm，因为后者是前者的子集<sup>[7]</sup>。{{chapter:08_capstone|第 8 章}}比较几个系统的做法。
#
# 一行规格，可以运行：同一位置上有几个模式匹配时，应该留下哪一个？

# %% TODO 1 的规格 slug="todo1-spec"
# 位置 0 上匹配的有两个；比的是元组的长度（算子个数），不是字符数
max([('a', 'b'), ('a', 'b', 'c')], key=len)

# %% [markdown] slug="todo1-hints"
# <details><summary>提示 1（方向）</summary>
#
# `FUSION_PATTERNS.items()` 给出一对对 `(算子元组, 模式名)`。循环里正是这样拆的：`for pattern, name in ordered_patterns`。你要做的，是把这些对排个次序。
#
# </details>
# <details><summary>提示 2（工具）</summary>
#
# `sorted(..., key=..., reverse=...)`。`key` 收到的是一对 `(算子元组, 模式名)`；想想该对其中的哪一个取 `len`。
#
# </details>
# <details><summary>提示 3（自查）</summary>
#
# 把你的 `ordered_patterns` 打印出来：三个算子的模式应排在两个算子的前面。若报 `too many values to unpack`，说明你只排了键，丢了名字。
#
# </details>

# %% TODO 1 找候选 todo=1 stub="请先完成 TODO 1：给 ordered_patterns 赋值（规则见 4.1）" nbgrader={"grade": false, "grade_id": "todo1", "locked": false, "schema_version": 3, "solution": true, "task": false}
def identify_fusion_candidates(ops: Sequence[str]) -> List[Dict[str, object]]:
    """按“最左、最长”在 ops 里找融合候选。

    返回 [{'pattern', 'start', 'end', 'ops'}, ...]，end 不含在内，按 start 递增；没有候选时返回 []。
    """
    # TODO 1：ordered_patterns 是 (算子元组, 模式名) 的序列，先试的排在前
    ### BEGIN SOLUTION
    ordered_patterns = sorted(FUSION_PATTERNS.items(), key=lambda item: len(item[0]), reverse=True)
    ### END SOLUTION

    ordered_patterns = list(ordered_patterns)
    if any(len(pattern) == 0 for pattern, _ in ordered_patterns):
        raise ValueError('FUSION_PATTERNS 里有空模式 ()，它在任何位置都“匹配”')
    candidates: List[Dict[str, object]] = []
    position = 0
    while position < len(ops):
        for pattern, name in ordered_patterns:
            end = position + len(pattern)
            if tuple(ops[position:end]) == tuple(pattern):
                candidates.append({'pattern': name, 'start': position, 'end': end, 'ops': list(ops[position:end])})
                position = end
                break
        else:
            position += 1
    return candidates

# %% [markdown] slug="todo1-helper-text"
# 测试要用别的模式表。下面的辅助函数临时换上一张表，调用你的函数，再把原来的表放回去；出了异常也放回去。你自己试验时也可以用它。

# %% 换一张模式表来试 nbgrader={"grade": false, "grade_id": "identify_with_patterns", "locked": true, "schema_version": 3, "solution": false, "task": false}
def identify_with_patterns(ops, patterns):
    """FUSION_PATTERNS 临时换成 patterns 时，identify_fusion_candidates(ops) 的结果。"""
    saved = dict(FUSION_PATTERNS)
    FUSION_PATTERNS.clear()
    FUSION_PATTERNS.update(patterns)
    try:
        return identify_fusion_candidates(ops)
    finally:
        FUSION_PATTERNS.clear()
        FUSION_PATTERNS.update(saved)

# %% [markdown] slug="todo1-tests-text"
# **TODO 1 的测试。** 每一格检查一种行为，各有各的分。报错时看四行：应得、实得、可能的原因、请重读哪里。几格同时不过时，先改最上面的一格：下面几格往往是同一个错。

# %% 返回列表，每项四个字段 todo=1 step="4.1 TODO 1" nbgrader={"grade": true, "grade_id": "todo1_record", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
def difference(got, want, where='返回值'):
    """第一处不同，用话说出来；完全一样时是空串。连类型一起比：True 不是 1，元组不是列表。"""
    if not isinstance(got, type(want)) or isinstance(got, bool) != isinstance(want, bool):
        return f'{where} 的类型应是 {type(want).__name__}，实得 {type(got).__name__}'
    if isinstance(want, dict) and set(got) != set(want):
        return f'{where} 的键应是 {list(want)}，实得 {list(got)}'
    if isinstance(want, list) and len(got) != len(want):
        return f'{where} 应有 {len(want)} 项，实得 {len(got)} 项'
    if isinstance(want, (dict, list)):
        keys = want if isinstance(want, dict) else range(len(want))
        return next(filter(None, (difference(got[key], want[key], f'{where}[{key!r}]') for key in keys)), '')
    return '' if got == want else f'{where} 应是 {want!r}，实得 {got!r}'


def check(case, function, args, want, cause, step):
    """调用 function(*args)，结果与 want 比较。没做的 TODO 照原样报出自己的编号。"""
    def told(problem, shown):
        return f'{case}：{problem}\n  应得：{want!r}\n  实得：{shown}\n  可能的原因：{cause}\n  请重读：{step}'

    try:
        got = function(*args)
    except (ArithmeticError, AttributeError, LookupError, NameError, StopIteration, TypeError, ValueError) as error:
        raise AssertionError(told('函数抛出了异常（先解决它，再看下面的原因）', f'{type(error).__name__}: {error}')) from error
    problem = difference(got, want)
    assert not problem, told(problem, repr(got))


def check_record():
    want = [{'pattern': 'qkv_rope', 'start': 1, 'end': 3, 'ops': ['linear_qkv', 'rope']}]
    cause = 'ordered_patterns 的每一项应是 (算子元组, 模式名)；end 不含在内；ops 字段是列表'
    check('一个候选', identify_fusion_candidates, (['norm', 'linear_qkv', 'rope'],), want, cause, '4.1 和“数据的样子”')


check_record()

# %% 默认模式表：四个模式都找得到 todo=1 step="4.1 TODO 1" nbgrader={"grade": true, "grade_id": "todo1_default_table", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
def found(name, start, *ops):
    """从 start 开始的一个候选。"""
    return {'pattern': name, 'start': start, 'end': start + len(ops), 'ops': list(ops)}


def check_default_table():
    ops = ['linear_qkv', 'rope', 'attention', 'residual_add', 'rms_norm', 'linear_gate', 'silu', 'multiply']
    want = [
        found('qkv_rope', 0, 'linear_qkv', 'rope'),
        found('residual_rmsnorm', 3, 'residual_add', 'rms_norm'),
        found('swiglu', 5, 'linear_gate', 'silu', 'multiply'),
    ]
    cause = '四个模式都要在 ordered_patterns 里；结果按 start 从小到大'
    check('一层里的三个候选', identify_fusion_candidates, (ops,), want, cause, '4.1 TODO 1')
    ops = ['logits', 'temperature', 'top_k', 'sample']
    want = [found('sampling_chain', 0, 'logits', 'temperature', 'top_k')]
    check('采样链', identify_fusion_candidates, (ops,), want, cause, '4.1 TODO 1')


check_default_table()

# %% 同一位置取最长 todo=1 step="4.1 规则 2" nbgrader={"grade": true, "grade_id": "todo1_longest", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
def check_longest():
    step = '4.1 规则 2 与图 3'
    both_orders = [
        {('a', 'b'): 'ab', ('a', 'b', 'c'): 'abc'},
        {('a', 'b', 'c'): 'abc', ('a', 'b'): 'ab'},
    ]
    for patterns in both_orders:
        case, cause = f'模式表 {patterns}，输入 a b c', '没有按算子个数从多到少排；结果跟着声明的先后走了'
        check(case, identify_with_patterns, (['a', 'b', 'c'], patterns), [found('abc', 0, 'a', 'b', 'c')], cause, step)
    patterns = {('a', 'b'): 'a_long_name_for_two', ('a', 'b', 'c'): 'x'}
    case, cause = '短模式的名字更长', '比的是模式名的长短；应比算子元组（每一对的第 0 项）的长度'
    check(case, identify_with_patterns, (['a', 'b', 'c'], patterns), [found('x', 0, 'a', 'b', 'c')], cause, step)
    patterns = {('linear_long_name', 'silu'): 'two', ('linear_long_name', 'silu', 'mul'): 'three', ('p', 'q'): 'pq'}
    ops = ['linear_long_name', 'silu', 'mul', 'p', 'q']
    want = [found('three', 0, 'linear_long_name', 'silu', 'mul'), found('pq', 3, 'p', 'q')]
    check('算子名很长的模式', identify_with_patterns, (ops, patterns), want, '比的是字符数；应比算子的个数', step)
    patterns = {('a', 'b'): 'ab', ('a', 'b', 'c'): 'abc'}
    case, cause = '长模式不匹配时轮到短模式', '只留下了最长的模式；应是排序，不是筛选'
    check(case, identify_with_patterns, (['a', 'b', 'x'], patterns), [found('ab', 0, 'a', 'b')], cause, step)


check_longest()

# %% 用过的节点不再用，每一处都算 todo=1 step="4.1 规则 3" nbgrader={"grade": true, "grade_id": "todo1_consume", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
def check_consume():
    step = '4.1 规则 1 和规则 3'
    patterns = {('a', 'b', 'c'): 'abc', ('c', 'a'): 'ca'}
    cause = '匹配之后又从 end - 1 扫起，节点 c 被用了两次'
    want = [found('abc', 0, 'a', 'b', 'c')]
    check('c 已属于 abc', identify_with_patterns, (['a', 'b', 'c', 'a'], patterns), want, cause, step)
    want = [found('ab', 0, 'a', 'b'), found('ab', 2, 'a', 'b')]
    cause = '匹配之后应从 end 接着扫；从 end + 1 扫起就漏掉紧挨着的一个'
    check('两个候选紧挨着', identify_with_patterns, (['a', 'b', 'a', 'b'], {('a', 'b'): 'ab'}), want, cause, step)
    layer = ['residual_add', 'rms_norm', 'attention']
    want = [found('residual_rmsnorm', start, 'residual_add', 'rms_norm') for start in (0, 3, 6)]
    check('三层，每层一个', identify_fusion_candidates, (layer * 3,), want, '同一个模式只报告了一次；每一处都要报告', step)


check_consume()

# %% 没有候选与边界 todo=1 step="4.1 规则 4 和规则 5" nbgrader={"grade": true, "grade_id": "todo1_no_match", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
def check_no_match():
    cases = [
        ('没有可匹配的算子', ['embedding', 'attention'], '没有候选时应返回空列表 []，不是 None'),
        ('空的 ops', [], '空输入也应返回 []'),
        ('中间隔着别的算子', ['linear_qkv', 'attention', 'rope'], '模式必须连续，不能跳过中间的算子'),
        ('次序相反', ['rms_norm', 'residual_add'], '次序也是模式的一部分，不能当集合比'),
        ('末尾不够长', ['attention', 'linear_gate', 'silu'], '剩下的算子不够长，不算匹配'),
        ('首尾相接', ['rope', 'attention', 'linear_qkv'], '不能从末尾绕回开头'),
    ]
    for case, ops, cause in cases:
        check(f'{case}：{ops}', identify_fusion_candidates, (ops,), [], cause, '4.1 规则 4 和规则 5')


check_no_match()

# %% TODO 1 的全部可见检查 todo=1 step="4.1 TODO 1" nbgrader={"grade": true, "grade_id": "todo1_all", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
def test_candidate_identification():
    for one_check in (check_record, check_default_table, check_longest, check_consume, check_no_match):
        one_check()


test_candidate_identification()

# %% 后来登记的模式、同名的模式 todo=1 step="4.1 规则 6" nbgrader={"grade": true, "grade_id": "todo1_registry", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
# 隐藏测试：评分时检查规则 6
### BEGIN HIDDEN TESTS
def check_registry():
    step = '4.1 规则 6'
    extra = dict(FUSION_PATTERNS)
    extra[('rms_norm', 'quantize')] = 'rmsnorm_quant'
    ops = ['rms_norm', 'quantize', 'linear_qkv', 'rope']
    want = [found('rmsnorm_quant', 0, 'rms_norm', 'quantize'), found('qkv_rope', 2, 'linear_qkv', 'rope')]
    check('后来登记的模式', identify_with_patterns, (ops, extra), want, '次序在导入时就定死了', step)
    same_name = {('a', 'b'): 'same', ('c', 'd'): 'same'}
    want = [found('same', 0, 'a', 'b'), found('same', 3, 'c', 'd')]
    check('两个模式同名', identify_with_patterns, (['a', 'b', 'x', 'c', 'd'], same_name), want, '以名字为键，丢了一个', step)
    want = [found('qkv_rope', 0, 'linear_qkv', 'rope')]
    check('换表之后换回来', identify_fusion_candidates, (['linear_qkv', 'rope'],), want, '上一次的次序被存了下来', step)


check_registry()
### END HIDDEN TESTS

# %% 最左优先，不求覆盖最多 todo=1 step="4.1 规则 1" nbgrader={"grade": true, "grade_id": "todo1_leftmost", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# 隐藏测试：评分时检查规则 1
### BEGIN HIDDEN TESTS
def check_leftmost():
    cause, step = '为了多覆盖节点而放弃了最左的候选', '4.1 规则 1'
    patterns = {('a', 'b'): 'ab', ('b', 'c', 'd'): 'bcd'}
    want = [found('ab', 0, 'a', 'b')]
    check('ab 在左，bcd 更长', identify_with_patterns, (list('abcd'), patterns), want, cause, step)
    patterns = {('a', 'b', 'c'): 'abc', ('c', 'd', 'e', 'f'): 'cdef'}
    want = [found('abc', 0, 'a', 'b', 'c')]
    check('abc 挡住了 cdef', identify_with_patterns, (list('abcdef'), patterns), want, cause, step)
    patterns = {('b', 'a'): 'ba', ('a', 'b'): 'ab'}
    want = [found('ab', 0, 'a', 'b'), found('ab', 2, 'a', 'b')]
    check('ab 与 ba 交错', identify_with_patterns, (list('ababa'), patterns), want, cause, step)


check_leftmost()
### END HIDDEN TESTS

# %% 只读、可重复，列表与元组一样 todo=1 step="4.1 规则 7" nbgrader={"grade": true, "grade_id": "todo1_pure", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 隐藏测试：评分时检查规则 7
### BEGIN HIDDEN TESTS
def check_pure_identification():
    step = '4.1 规则 7'
    ops = ['linear_qkv', 'rope', 'linear_gate', 'silu', 'multiply']
    before = list(ops)
    want = [found('qkv_rope', 0, *before[:2]), found('swiglu', 2, *before[2:])]
    for case in ('第一次调用', '第二次调用'):
        check(case, identify_fusion_candidates, (ops,), want, '结果依赖上一次调用', step)
        assert ops == before, f'ops 被改了：应仍是 {before}，实得 {ops}。请重读：{step}'
    check('ops 是元组', identify_fusion_candidates, (tuple(before),), want, 'ops 是任意序列；字段 ops 总是列表', step)


check_pure_identification()
### END HIDDEN TESTS

# %% 随机的模式表与算子串 todo=1 step="4.1 TODO 1" nbgrader={"grade": true, "grade_id": "todo1_random", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 隐藏测试：评分时在随机的模式表上与独立的算法比较
### BEGIN HIDDEN TESTS
import random


def scan_by_definition(ops, patterns):
    """直接照规则写：每个位置上，在所有匹配里取最长的一个。"""
    result, position = [], 0
    while position < len(ops):
        matching = [pattern for pattern in patterns if tuple(ops[position:position + len(pattern)]) == pattern]
        longest = max(matching, key=len, default=())
        if longest:
            result.append(found(patterns[longest], position, *longest))
        position += max(1, len(longest))
    return result


def check_random_identification():
    draw = random.Random(20260704)
    for _ in range(40):
        keys = [tuple(draw.choices('abc', k=draw.randint(2, 4))) for _ in range(draw.randint(1, 5))]
        patterns = {key: f'p{number}' for number, key in enumerate(keys)}
        ops = draw.choices('abc', k=draw.randint(0, 14))
        want = scan_by_definition(ops, patterns)
        check(f'{patterns} / {ops}', identify_with_patterns, (ops, patterns), want, '与规则 1 至 5 不符', '4.1 TODO 1')


check_random_identification()
### END HIDDEN TESTS

# %% [markdown] slug="todo1-instructor" todo=1 tags=["instructor-only"]
# #### 讲解：TODO 1（只在教师版）
#
# **为什么这样写。** 扫描按 `ordered_patterns` 的次序试，试中第一个就收下。把算子多的排在前面，“第一个试中的”就是“最长的”。`sorted` 每次调用都读当时的 `FUSION_PATTERNS`，所以后来登记的模式自然有效。等长的模式在同一位置不可能都匹配（匹配就意味着元组相等，而字典的键不重复），因此次序里的并列无需处理。
#
# **复杂度。** 设 $n$ 个算子、$p$ 个模式、最长 $m$：排序 $O(p\log p)$，扫描 $O(n\,p\,m)$。真实系统用图匹配或 trie；这里的规模不需要。
#
# **常见错误**
#
# | 写法 | 后果 | 哪一格抓住 |
# |---|---|---|
# | `FUSION_PATTERNS.items()` 不排 | 声明在前的短模式赢 | `todo1_longest` |
# | `key=lambda item: len(item[1])` | 比了模式名的长短 | `todo1_longest` |
# | `sorted(FUSION_PATTERNS, key=len, reverse=True)` | 丢了名字，三个算子的键拆不成两个 | `todo1_record` |
# | 只取 `max` | 短模式再也匹配不上 | `todo1_longest` |
# | 模块级常量 | 后来登记的无效 | `todo1_longest`、`todo1_registry` |
# | `{name: ops}` | 同名的互相覆盖 | `todo1_registry` |
# | 动态规划求最大覆盖 | 不是最左优先 | `todo1_leftmost` |
#
# **评分说明。** 可见 21 分，隐藏 11 分。整个函数重写的，按行为给分。等长模式的先后看不出来，没有测试依赖它；空模式的 `ValueError` 由给出的代码负责，不计分。

# %% [markdown] slug="todo2-text"
# ### 4.2 TODO 2：能力门（evaluate backend capability）
#
# 用时 20 分钟 ｜ 难度 ●●○ ｜ 要写的：五行，给 `pattern_supported`、`dtype_supported`、`device_supported`、`sequence_supported`、`dynamic_shape_supported` 赋值
#
# 返回一份能力报告：`{'backend': 名字, 'supported': bool, 'reasons': list[str]}`。`checks`、`reasons` 和返回值已经给出，你只写五个判断。
#
# **规则**（测试只依据这几条）
#
# 1. **五道门互相独立**。一道门失败，不改变别的门的结论。`reasons` 列出**每一道**失败的门，次序固定：`unsupported_pattern`、`unsupported_dtype`、`unsupported_device`、`sequence_too_long`、`dynamic_shape_not_supported`。它是列表；全部通过时是 `[]`。只要有一条原因，`supported` 就是 `False`。
# 2. **名单用成员判断（membership）**：候选的 `pattern`、输入的 `dtype` 和 `device`，分别在这个后端的 `patterns`、`dtypes`、`devices` 里，并且是**整个相等**的一项。不看子串，不看位宽，不只看第一项。名单以这个后端的声明为准，与全局的 `FUSION_PATTERNS` 无关。
# 3. **没有这个名单，就什么都不支持**。后端缺了 `patterns`、`dtypes` 或 `devices`，按空名单算，不抛 `KeyError`，也不当作“都支持”。
# 4. **长度**：`seq_len <= max_seq_len` 通过，相等也通过。后端缺 `max_seq_len` 按 0 算；输入缺 `seq_len` 也按 0 算。形状是静态还是动态，都要过这道门。
# 5. **动态形状**：静态输入（`dynamic_shape` 为 `False`，或没写）总能通过。动态输入只有在后端明确写了 `supports_dynamic_shape` 为 `True` 时才通过；没写就是不支持。
# 6. **后端没有 `name`** 时，报告里写 `'unknown'`（给出的代码已处理）。
# 7. **只读**：不改 `candidate`、`workload`、`backend`；同样的输入给同样的结果。
#
# 一行规格，可以运行：同样写 `in`，左边在字符串里和在列表里，结果不同。

# %% TODO 2 的规格 slug="todo2-spec"
# (子串判断, 成员判断, 长度恰好等于上限)
('float16' in 'bfloat16', 'float16' in ['bfloat16'], 4096 <= 4096)

# %% [markdown] slug="todo2-hints"
# <details><summary>提示 1（方向）</summary>
#
# 五行各写各的，互不引用。前三行的形状一样，只是查的名单不同。
#
# </details>
# <details><summary>提示 2（工具）</summary>
#
# 字典可能缺键：`backend.get('patterns', 缺省值)`。想想规则 3 要的缺省值是什么，规则 4 的又是什么。
#
# </details>
# <details><summary>提示 3（最后一道门）</summary>
#
# 把规则 5 读成“**或者**输入不是动态的，**或者**后端明确支持”。先写 `not ...`，再写 `or ...`。
#
# </details>

# %% TODO 2 能力门 todo=2 stub="请先完成 TODO 2：给五个 *_supported 赋值（规则见 4.2）" nbgrader={"grade": false, "grade_id": "todo2", "locked": false, "schema_version": 3, "solution": true, "task": false}
def evaluate_backend_capability(
    candidate: Dict[str, object], workload: Dict[str, object], backend: Dict[str, object]
) -> Dict[str, object]:
    """这个后端能不能用快路径执行这个候选？

    返回 {'backend': str, 'supported': bool, 'reasons': list[str]}；reasons 含每一道失败的门，次序固定。
    """
    # TODO 2：五个判断，结果都是 True 或 False
    ### BEGIN SOLUTION
    pattern_supported = candidate.get('pattern') in backend.get('patterns', [])
    dtype_supported = workload.get('dtype') in backend.get('dtypes', [])
    device_supported = workload.get('device') in backend.get('devices', [])
    sequence_supported = workload.get('seq_len', 0) <= backend.get('max_seq_len', 0)
    dynamic_shape_supported = not workload.get('dynamic_shape', False) or backend.get('supports_dynamic_shape') is True
    ### END SOLUTION

    checks = {
        'unsupported_pattern': pattern_supported,
        'unsupported_dtype': dtype_supported,
        'unsupported_device': device_supported,
        'sequence_too_long': sequence_supported,
        'dynamic_shape_not_supported': dynamic_shape_supported,
    }
    reasons = [reason for reason, passed in checks.items() if not passed]
    return {'backend': str(backend.get('name', 'unknown')), 'supported': not reasons, 'reasons': reasons}

# %% [markdown] slug="todo2-tests-text"
# **TODO 2 的测试。** 先是每道门单独失败，再是几道门一起失败。测试都从一个“五道门全通过”的组合出发，每次只改一两处。

# %% 五道门都通过 todo=2 step="4.2 TODO 2" nbgrader={"grade": true, "grade_id": "todo2_pass", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
SWIGLU = {'pattern': 'swiglu', 'start': 5, 'end': 8, 'ops': ['linear_gate', 'silu', 'multiply']}
STATIC = {'dtype': 'float16', 'device': 'cuda', 'seq_len': 1024, 'dynamic_shape': False}
DYNAMIC = dict(STATIC, dynamic_shape=True)
FUSED = {
    'name': 'fused', 'patterns': ['swiglu'], 'dtypes': ['float16'], 'devices': ['cuda'],
    'max_seq_len': 4096, 'supports_dynamic_shape': True,
}


def check_gate(case, reasons, cause, step, candidate=SWIGLU, workload=STATIC, backend=FUSED):
    want = {'backend': backend.get('name', 'unknown'), 'supported': not reasons, 'reasons': reasons}
    cause += '；若多出或缺少的是别的门的原因，错在那一道门'
    check(case, evaluate_backend_capability, (dict(candidate), dict(workload), dict(backend)), want, cause, step)


def check_all_pass():
    cause = '合适的输入被某一道门拒绝了；看实得的 reasons 是哪一道（例如 dtype 和 device 的名单查反了）'
    check_gate('五道门都该通过', [], cause, '4.2 TODO 2')


check_all_pass()

# %% 模式门 todo=2 step="4.2 规则 2" nbgrader={"grade": true, "grade_id": "todo2_pattern", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
def check_pattern_gate():
    step = '4.2 规则 2'
    qkv = dict(SWIGLU, pattern='qkv_rope')
    cause = '没有查这个后端的 patterns（例如查了全局的 FUSION_PATTERNS），或总是通过'
    check_gate('候选是 qkv_rope，后端只有 swiglu', ['unsupported_pattern'], cause, step, candidate=qkv)
    two = dict(FUSED, patterns=['qkv_rope', 'swiglu'])
    check_gate('swiglu 在名单的第二项', [], '只看了名单的第一项', step, backend=two)
    own = dict(FUSED, patterns=['my_pattern'])
    cause = '名单以后端的声明为准，模式不必在 FUSION_PATTERNS 里'
    check_gate('后端自己声明的模式', [], cause, step, candidate=dict(SWIGLU, pattern='my_pattern'), backend=own)


check_pattern_gate()

# %% dtype 门 todo=2 step="4.2 规则 2" nbgrader={"grade": true, "grade_id": "todo2_dtype", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
def check_dtype_gate():
    step = '4.2 规则 2'
    bfloat16, float32 = dict(STATIC, dtype='bfloat16'), dict(STATIC, dtype='float32')
    cause = '只看了名单的第一项，或把 dtype 拿到 devices 里去查了'
    check_gate('float16 在名单的第二项', [], cause, step, backend=dict(FUSED, dtypes=['bfloat16', 'float16']))
    cause = 'dtype 要整个相等；位宽相同（bfloat16 与 float16）也是不同的 dtype'
    check_gate('输入 bfloat16，后端只有 float16', ['unsupported_dtype'], cause, step, workload=bfloat16)
    cause = '只有 dtype 不对，就只报这一条；若五条都报，是把五道门连在一起了'
    check_gate('输入 float32，后端只有 float16', ['unsupported_dtype'], cause, step, workload=float32)


check_dtype_gate()

# %% 设备门 todo=2 step="4.2 规则 2" nbgrader={"grade": true, "grade_id": "todo2_device", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
def check_device_gate():
    step = '4.2 规则 2'
    cause = '只看了名单的第一项，或把 device 拿到 dtypes 里去查了'
    check_gate('cuda 在名单的第二项', [], cause, step, backend=dict(FUSED, devices=['cpu', 'cuda']))
    cause = '设备门没有起作用，或者结果放到了别的门的名下'
    check_gate('输入在 cpu，后端只有 cuda', ['unsupported_device'], cause, step, workload=dict(STATIC, device='cpu'))


check_device_gate()

# %% 长度门 todo=2 step="4.2 规则 4" nbgrader={"grade": true, "grade_id": "todo2_sequence", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
def check_sequence_gate():
    step = '4.2 规则 4'
    check_gate('长度恰好等于上限 4096', [], '写成了 <；相等也通过，应是 <=', step, workload=dict(STATIC, seq_len=4096))
    cause = '长度门没有起作用，或者结果放到了别的门的名下'
    check_gate('长度 4097，上限 4096', ['sequence_too_long'], cause, step, workload=dict(STATIC, seq_len=4097))
    cause, long = '动态输入跳过了长度门；两道门互相独立', dict(DYNAMIC, seq_len=8192)
    check_gate('动态输入，长度 8192', ['sequence_too_long'], cause, step, workload=long)


check_sequence_gate()

# %% 动态形状门 todo=2 step="4.2 规则 5" nbgrader={"grade": true, "grade_id": "todo2_dynamic", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
def check_dynamic_gate():
    step = '4.2 规则 5'
    rigid = dict(FUSED, supports_dynamic_shape=False)
    check_gate('静态输入，后端写了 False', [], '静态输入总能通过；只看后端的标志还不够', step, backend=rigid)
    cause = '动态输入而后端不支持：要写原因，supported 也要是 False'
    check_gate('动态输入，后端写了 False', ['dynamic_shape_not_supported'], cause, step, workload=DYNAMIC, backend=rigid)
    check_gate('动态输入，后端写了 True', [], '后端明确支持，应通过', step, workload=DYNAMIC)
    silent = {key: value for key, value in FUSED.items() if key != 'supports_dynamic_shape'}
    cause = '没写就是不支持；缺省值不能是 True'
    check_gate('动态输入，后端没写', ['dynamic_shape_not_supported'], cause, step, workload=DYNAMIC, backend=silent)


check_dynamic_gate()

# %% 报告：全部原因，固定次序 todo=2 step="4.2 规则 1" nbgrader={"grade": true, "grade_id": "todo2_report", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
def check_report():
    step = '4.2 规则 1'
    cause = '报告的三个键是 backend、supported、reasons；reasons 是按固定次序的列表，含每一道失败的门'
    far = dict(STATIC, dtype='float32', device='cpu')
    check_gate('dtype 和设备都不对', ['unsupported_dtype', 'unsupported_device'], cause, step, workload=far)
    worst = {'dtype': 'int8', 'device': 'npu', 'seq_len': 10**6, 'dynamic_shape': True}
    every_reason = [
        'unsupported_pattern', 'unsupported_dtype', 'unsupported_device',
        'sequence_too_long', 'dynamic_shape_not_supported',
    ]
    other = dict(FUSED, name='other', supports_dynamic_shape=False)
    check_gate('五道门都失败', every_reason, cause, step, candidate=dict(SWIGLU, pattern='x'), workload=worst, backend=other)


check_report()

# %% TODO 2 的全部可见检查 todo=2 step="4.2 TODO 2" nbgrader={"grade": true, "grade_id": "todo2_all", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
def test_backend_capability_gate():
    for one_check in (
        check_all_pass, check_pattern_gate, check_dtype_gate, check_device_gate,
        check_sequence_gate, check_dynamic_gate, check_report,
    ):
        one_check()


test_backend_capability_gate()

# %% 字段缺失 todo=2 step="4.2 规则 3 和规则 4" nbgrader={"grade": true, "grade_id": "todo2_missing", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
# 隐藏测试：评分时检查规则 3、4、6 里“缺了怎么办”
### BEGIN HIDDEN TESTS
def check_missing_fields():
    def without(record, key):
        return {name: value for name, value in record.items() if name != key}

    step = '4.2 规则 3、4、6'
    cause = '后端没有声明，就是不支持：缺省值应是空名单，上限是 0'
    for key, reason in [
        ('patterns', 'unsupported_pattern'), ('dtypes', 'unsupported_dtype'),
        ('devices', 'unsupported_device'), ('max_seq_len', 'sequence_too_long'),
    ]:
        check_gate(f'后端没有 {key}', [reason], cause, step, backend=without(FUSED, key))
    check_gate('输入没有 seq_len', [], '缺 seq_len 按 0 算', step, workload=without(STATIC, 'seq_len'))
    check_gate('后端没有 name', [], "名字写 'unknown'", step, backend=without(FUSED, 'name'))
    bare = ['unsupported_pattern', 'unsupported_dtype', 'unsupported_device', 'sequence_too_long']
    check_gate('后端是空字典', bare, cause, step, backend={})


check_missing_fields()
### END HIDDEN TESTS

# %% 五道门的每一种组合 todo=2 step="4.2 规则 1" nbgrader={"grade": true, "grade_id": "todo2_combinations", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
# 隐藏测试：评分时检查五道门的全部 32 种组合
### BEGIN HIDDEN TESTS
def check_gate_combinations():
    gates = [
        ('unsupported_pattern', 'patterns', ['qkv_rope'], ['qkv_rope', 'swiglu']),
        ('unsupported_dtype', 'dtypes', ['bfloat16'], ['bfloat16', 'float16']),
        ('unsupported_device', 'devices', ['cpu'], ['cpu', 'cuda']),
        ('sequence_too_long', 'max_seq_len', 512, 2048),
        ('dynamic_shape_not_supported', 'supports_dynamic_shape', False, True),
    ]
    for number in range(2 ** len(gates)):
        backend, reasons = {'name': f'b{number}'}, []
        for bit, (reason, key, failing, passing) in enumerate(gates):
            fails = bool(number >> bit & 1)
            backend[key] = failing if fails else passing
            reasons += [reason] * fails
        check_gate(f'失败的门：{reasons}', reasons, '门与门之间不独立', '4.2 规则 1', workload=DYNAMIC, backend=backend)


check_gate_combinations()
### END HIDDEN TESTS

# %% 成员判断，不是子串 todo=2 step="4.2 规则 2" nbgrader={"grade": true, "grade_id": "todo2_membership", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# 隐藏测试：评分时检查规则 2 的“整个相等”
### BEGIN HIDDEN TESTS
def check_membership():
    cause, step = '用了子串、前缀或位宽；应是与名单里某一项整个相等', '4.2 规则 2'
    for wanted, declared in [('float16', 'bfloat16'), ('float', 'float16'), ('float16', 'float'), ('float16', 'int16')]:
        workload, backend = dict(STATIC, dtype=wanted), dict(FUSED, dtypes=[declared])
        check_gate(f'{wanted} / {declared}', ['unsupported_dtype'], cause, step, workload=workload, backend=backend)
    for wanted, declared in [('rope', 'qkv_rope'), ('qkv_rope', 'rope'), ('qkv_rope', 'qkv_rope_fp8')]:
        candidate, backend = dict(SWIGLU, pattern=wanted), dict(FUSED, patterns=[declared])
        check_gate(f'{wanted} / {declared}', ['unsupported_pattern'], cause, step, candidate=candidate, backend=backend)
    for wanted, declared in [('cpu', 'cpu_amx'), ('cuda', 'cu')]:
        workload, backend = dict(STATIC, device=wanted), dict(FUSED, devices=[declared])
        check_gate(f'{wanted} / {declared}', ['unsupported_device'], cause, step, workload=workload, backend=backend)


check_membership()
### END HIDDEN TESTS

# %% 只读、可重复 todo=2 step="4.2 规则 7" nbgrader={"grade": true, "grade_id": "todo2_pure", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 隐藏测试：评分时检查规则 7
### BEGIN HIDDEN TESTS
def check_pure_gate():
    import copy

    step = '4.2 规则 7'
    args = (dict(SWIGLU), dict(STATIC, dtype='float32'), dict(FUSED))
    before = copy.deepcopy(args)
    want = {'backend': 'fused', 'supported': False, 'reasons': ['unsupported_dtype']}
    for case in ('第一次调用', '第二次调用'):
        check(case, evaluate_backend_capability, args, want, '结果依赖上一次调用', step)
        assert args == before, f'输入被改了。请重读：{step}'
    sparse = (dict(SWIGLU), {}, {'name': 'sparse'})
    try:
        evaluate_backend_capability(*sparse)
    except (LookupError, TypeError):
        pass  # 缺字段时的结论由“字段缺失”那一格检查，这里只看输入
    assert sparse == (SWIGLU, {}, {'name': 'sparse'}), f'缺的字段被补进了输入。请重读：{step}'


check_pure_gate()
### END HIDDEN TESTS

# %% [markdown] slug="todo2-instructor" todo=2 tags=["instructor-only"]
# #### 讲解：TODO 2（只在教师版）
#
# **为什么这样写。** 五个判断各自独立，`checks` 保持插入次序，`reasons` 的次序就固定了。缺省值一律取最保守的：空名单、0、不支持。能力门宁可误拒（走 eager，慢但对），不可误收（跑错或崩溃）。
#
# **复杂度。** 名单长 $k$ 时 $O(k)$。名单很长时可以换成 `set`；这里的名单来自 JSON，保留列表。
#
# **常见错误**
#
# | 写法 | 后果 | 哪一格抓住 |
# |---|---|---|
# | `<` 代替 `<=` | 恰好等于上限的被拒 | `todo2_sequence` |
# | `backend['patterns']` | 缺键时 `KeyError` | `todo2_missing` |
# | `backend.get('dtypes') is None or ...` | 没声明当作都支持 | `todo2_missing` |
# | `candidate['pattern'] in FUSION_PATTERNS.values()` | 查了全局，不查后端 | `todo2_pattern` |
# | `dtype_supported = pattern_supported and ...` | 一错全错，原因失真 | `todo2_dtype`、`todo2_combinations` |
# | `any(dtype in d for d in dtypes)` | 子串：float16 混进 bfloat16 | `todo2_membership` |
# | 只看 `supports_dynamic_shape` | 静态输入也被拒 | `todo2_dynamic` |
# | `get('supports_dynamic_shape', True)` | 没声明当作支持 | `todo2_dynamic` |
#
# **评分说明。** 可见 23 分，隐藏 13 分。`supports_dynamic_shape` 取 `True` 以外的真值（如 `1`）没有测试；`bool(...)` 与 `is True` 都得满分。`patterns` 的值是 `None` 不在约定里，也不测。

# %% [markdown] slug="todo3-text"
# ### 4.3 TODO 3：分派与回退（dispatch and fall back）
#
# 用时 20 分钟 ｜ 难度 ●○○ ｜ 要写的：一行，给 `selected` 赋值
#
# `capability_reports` 是每个后端的能力报告，与 `backends` 同样的次序。`selected` 应是其中的**一份报告**（字典），或者 `None`。其余的已经给出。
#
# **规则**（测试只依据这几条）
#
# 1. **列表的次序就是优先级**：取第一份 `supported` 为 `True` 的报告。不比 `max_seq_len`，不比原因的多少，不看后端里别的键。
# 2. **没有可用的后端就回退**：`selected` 是 `None`，返回 `{'execution_path': 'eager', 'decision': 'fallback', 'rejected_backends': {...}}`。`backends` 是空列表也一样，不抛异常。
# 3. **有可用的后端**：返回 `{'execution_path': 它的名字, 'decision': 'optimized', 'rejected_backends': {...}}`。
# 4. **`rejected_backends`** 是 `{名字: 原因的列表}`：含**全部**不支持的后端，排在胜者后面的也算；每个都带它的**全部**原因；支持的后端一个也不在里面。
# 5. **只读**：不改 `candidate`、`workload`、`backends`（也不给 `backends` 排序）；同样的输入给同样的结果。
#
# 一行规格，可以运行：从左到右，第一个 `True` 的名字；一个都没有时是空的。

# %% TODO 3 的规格 slug="todo3-spec"
[[name for name, ok in row if ok][:1] for row in ([('a', False), ('b', True), ('c', True)], [('a', False)], [])]

# %% [markdown] slug="todo3-hints"
# <details><summary>提示 1（方向）</summary>
#
# 从左到右看 `capability_reports`，遇到第一份可用的就停；看完了也没有，就是 `None`。一个 `for` 循环就够：循环前先 `selected = None`，找到后 `break`。
#
# </details>
# <details><summary>提示 2（工具）</summary>
#
# `next(迭代器, 缺省值)` 取第一项；没有第一项时给缺省值。少了第二个参数，它会抛 `StopIteration`。
#
# </details>
# <details><summary>提示 3（自查）</summary>
#
# `selected` 是报告，不是后端，也不是名字：下面的代码会取 `selected['backend']`。
#
# </details>

# %% TODO 3 分派与回退 todo=3 stub="请先完成 TODO 3：给 selected 赋值（规则见 4.3）" nbgrader={"grade": false, "grade_id": "todo3", "locked": false, "schema_version": 3, "solution": true, "task": false}
def dispatch_candidate(
    candidate: Dict[str, object], workload: Dict[str, object], backends: List[Dict[str, object]]
) -> Dict[str, object]:
    """按优先级为候选选一个后端；都不支持时回退到 eager。

    返回 {'execution_path': str, 'decision': 'optimized' 或 'fallback', 'rejected_backends': {名字: [原因, ...]}}。
    """
    capability_reports = [evaluate_backend_capability(candidate, workload, backend) for backend in backends]
    rejected = {report['backend']: report['reasons'] for report in capability_reports if not report['supported']}

    # TODO 3：selected 是第一份 supported 的报告；没有就是 None
    ### BEGIN SOLUTION
    selected = next((report for report in capability_reports if report['supported']), None)
    ### END SOLUTION

    if selected is None:
        return {'execution_path': 'eager', 'decision': 'fallback', 'rejected_backends': rejected}
    return {'execution_path': selected['backend'], 'decision': 'optimized', 'rejected_backends': rejected}

# %% [markdown] slug="todo3-helper-text"
# `dispatch_candidate` 要用到你的 TODO 2。为了不让 TODO 2 的错误在这里再扣一次分，测试用下面的辅助函数临时代替能力门：每个后端的原因由一张表给出。最后有一格用你自己的能力门，从头到尾走一遍。

# %% 用给定的能力结论来分派 nbgrader={"grade": false, "grade_id": "dispatch_with_reports", "locked": true, "schema_version": 3, "solution": false, "task": false}
def dispatch_with_reports(candidate, workload, backends, reasons_by_backend):
    """能力门的结论由 {名字: [原因, ...]} 给出时，dispatch_candidate(candidate, workload, backends) 的结果。"""

    def gate_from_table(candidate, workload, backend):
        name = str(backend.get('name', 'unknown'))
        reasons = list(reasons_by_backend[name])
        return {'backend': name, 'supported': not reasons, 'reasons': reasons}

    names = globals()
    own_gate = names.get('evaluate_backend_capability')
    names['evaluate_backend_capability'] = gate_from_table
    try:
        return dispatch_candidate(candidate, workload, backends)
    finally:
        if own_gate is None:  # TODO 2 的单元还没有运行过
            del names['evaluate_backend_capability']
        else:
            names['evaluate_backend_capability'] = own_gate

# %% [markdown] slug="todo3-tests-text"
# **TODO 3 的测试。** 若报“请先完成 TODO 2”，先回到 4.2。

# %% 优先级：两个都可用时取在前的 todo=3 step="4.3 规则 1" nbgrader={"grade": true, "grade_id": "todo3_priority", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
def make_backend(name, *reasons, **changes):
    """一个真实的后端：对 SWIGLU 和 DYNAMIC，恰好失败在 reasons 这几道门。"""
    backend = {
        'name': name,
        'patterns': ['qkv_rope'] if 'unsupported_pattern' in reasons else ['qkv_rope', 'swiglu'],
        'dtypes': ['bfloat16'] if 'unsupported_dtype' in reasons else ['bfloat16', 'float16'],
        'devices': ['cpu'] if 'unsupported_device' in reasons else ['cpu', 'cuda'],
        'max_seq_len': 512 if 'sequence_too_long' in reasons else 4096,
        'supports_dynamic_shape': 'dynamic_shape_not_supported' not in reasons,
    }
    return dict(backend, **changes)


def check_dispatch(case, backends, reasons, path, cause, step, workload=DYNAMIC):
    """reasons：{名字: [原因, ...]}，没列出的后端都可用；path 是应走的路径。"""
    table = {backend['name']: reasons.get(backend['name'], []) for backend in backends}
    decision = 'fallback' if path == 'eager' else 'optimized'
    want = {'execution_path': path, 'decision': decision, 'rejected_backends': reasons}
    args = (dict(SWIGLU), dict(workload), [dict(backend) for backend in backends], table)
    check(case, dispatch_with_reports, args, want, cause, step)


def check_priority():
    step, cause = '4.3 规则 1', '应取 backends 里第一个可用的；不能取最后一个，也不能按容量或别的键重排；selected 是报告，不是后端'
    small = make_backend('small', max_seq_len=2048, priority=9)
    big = make_backend('big', max_seq_len=8192, priority=1)
    check_dispatch('两个都可用，small 在前', [small, big], {}, 'small', cause, step)
    check_dispatch('两个都可用，big 在前', [big, small], {}, 'big', cause, step)


check_priority()

# %% 优先级：可用的在任何位置 todo=3 step="4.3 规则 1" nbgrader={"grade": true, "grade_id": "todo3_position", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
def check_position():
    step, cause = '4.3 规则 1', '只看了某一个位置上的报告，或找到以后没有停；应从左到右找第一个可用的'
    good, spare, refused = make_backend('good'), make_backend('spare'), make_backend('bad', 'unsupported_dtype')
    bad = {'bad': ['unsupported_dtype']}
    check_dispatch('可用的在第一个', [good, refused], bad, 'good', cause, step)
    check_dispatch('可用的在中间', [refused, good, spare], bad, 'good', cause, step)
    dyn, stat = make_backend('dyn'), make_backend('stat', supports_dynamic_shape=False)
    cause = '只支持静态的后端没有优先权；仍取列表里的第一个'
    check_dispatch('静态输入，两个都可用', [dyn, stat], {}, 'dyn', cause, step, workload=STATIC)


check_position()

# %% 都不支持时回退到 eager todo=3 step="4.3 规则 2" nbgrader={"grade": true, "grade_id": "todo3_fallback", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
def check_fallback():
    step = '4.3 规则 2'
    one = {'bad': ['unsupported_dtype']}
    cause = "没有可用的后端时 selected 应是 None（不是 False，不能没有赋值，也不能抛 StopIteration），于是走 eager / fallback"
    check_dispatch('只有一个后端，不支持', [make_backend('bad', *one['bad'])], one, 'eager', cause, step)
    both = {'two': ['unsupported_dtype', 'unsupported_device'], 'one': ['unsupported_dtype']}
    backends = [make_backend(name, *reasons) for name, reasons in both.items()]
    cause = '原因少的后端也是不支持的后端，不能选它'
    check_dispatch('两个都不支持', backends, both, 'eager', cause, step)


check_fallback()

# %% 被拒的后端都留下全部原因 todo=3 step="4.3 规则 4" nbgrader={"grade": true, "grade_id": "todo3_rejected", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
def check_rejected():
    step = '4.3 规则 3 和规则 4'
    reasons = {'old': ['unsupported_dtype', 'sequence_too_long'], 'late': ['unsupported_pattern', 'unsupported_device']}
    old, late = (make_backend(name, *why) for name, why in reasons.items())
    ready, spare = make_backend('ready'), make_backend('spare')
    cause = "rejected_backends 应是 {名字: 原因列表}：含胜者后面被拒的，每个带全部原因，不含可用的；execution_path 不对时先看规则 1"
    check_dispatch('胜者前后各有一个被拒', [old, ready, late, spare], reasons, 'ready', cause, step)
    check_dispatch('没有一个被拒', [ready, spare], {}, 'ready', cause, step)


check_rejected()

# %% 用你自己的能力门走一遍 todo=3 step="4.3 TODO 3" nbgrader={"grade": true, "grade_id": "todo3_own_gate", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
def check_own_gate():
    step = '4.2 与 4.3'
    half = {
        'name': 'half', 'patterns': ['swiglu'], 'dtypes': ['float32'], 'devices': ['cuda'],
        'max_seq_len': 512, 'supports_dynamic_shape': True,
    }
    want = {
        'execution_path': 'fused', 'decision': 'optimized',
        'rejected_backends': {'half': ['unsupported_dtype', 'sequence_too_long']},
    }
    cause = '若 TODO 3 前面的测试都通过，错在 TODO 2 的某一道门；否则先看前面的测试'
    check('第二个后端可用', dispatch_candidate, (dict(SWIGLU), dict(DYNAMIC), [half, dict(FUSED)]), want, cause, step)


check_own_gate()

# %% TODO 3 的全部可见检查 todo=3 step="4.3 TODO 3" nbgrader={"grade": true, "grade_id": "todo3_all", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
def test_dispatch_and_fallback():
    for one_check in (check_own_gate, check_priority, check_position, check_fallback, check_rejected):
        one_check()


test_dispatch_and_fallback()

# %% 没有后端可选 todo=3 step="4.3 规则 2" nbgrader={"grade": true, "grade_id": "todo3_no_backend", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
# 隐藏测试：评分时检查规则 2 的空列表
### BEGIN HIDDEN TESTS
def check_no_backend():
    cause, step = '空列表也要回退，不能抛 IndexError、ValueError 或 StopIteration', '4.3 规则 2'
    check_dispatch('backends 是空列表', [], {}, 'eager', cause, step)
    reasons = {f'b{number}': ['unsupported_pattern'] for number in range(4)}
    backends = [make_backend(name, 'unsupported_pattern') for name in reasons]
    check_dispatch('四个后端都不支持', backends, reasons, 'eager', cause, step)


check_no_backend()
### END HIDDEN TESTS

# %% 随机的后端列表 todo=3 step="4.3 TODO 3" nbgrader={"grade": true, "grade_id": "todo3_random", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
# 隐藏测试：评分时在随机的后端列表上与规则比较
### BEGIN HIDDEN TESTS
def check_random_dispatch():
    import random

    draw = random.Random(20260705)
    every_reason = [
        'unsupported_pattern', 'unsupported_dtype', 'unsupported_device',
        'sequence_too_long', 'dynamic_shape_not_supported',
    ]
    for _ in range(40):
        names = draw.sample('abcdefgh', k=draw.randint(1, 6))
        reasons = {name: [why for why in every_reason if draw.random() < 0.2] for name in names}
        backends = [make_backend(name, *reasons[name]) for name in names]
        path = next((name for name in names if not reasons[name]), 'eager')
        rejected = {name: why for name, why in reasons.items() if why}
        check_dispatch(f'{reasons}', backends, rejected, path, '与规则 1 至 4 不符', '4.3 TODO 3')


check_random_dispatch()
### END HIDDEN TESTS

# %% 只读、可重复 todo=3 step="4.3 规则 5" nbgrader={"grade": true, "grade_id": "todo3_pure", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
# 隐藏测试：评分时检查规则 5
### BEGIN HIDDEN TESTS
def check_pure_dispatch():
    import copy

    step, cause = '4.3 规则 5', '结果依赖上一次调用，或 backends 被重新排过'
    reasons = {'z': ['unsupported_dtype'], 'm': ['unsupported_device', 'sequence_too_long']}
    backends = [make_backend('z', *reasons['z']), make_backend('a'), make_backend('m', *reasons['m'])]
    table = {'z': reasons['z'], 'a': [], 'm': reasons['m']}
    args = (dict(SWIGLU), dict(DYNAMIC), backends, table)
    before = copy.deepcopy(args)
    want = {'execution_path': 'a', 'decision': 'optimized', 'rejected_backends': reasons}
    for case in ('第一次调用', '第二次调用'):
        check(case, dispatch_with_reports, args, want, cause, step)
        assert args == before, f'输入被改了（例如给 backends 排了序）。请重读：{step}'


check_pure_dispatch()
### END HIDDEN TESTS

# %% [markdown] slug="todo3-instructor" todo=3 tags=["instructor-only"]
# #### 讲解：TODO 3（只在教师版）
#
# **为什么这样写。** `next(生成器, None)` 正好是“从左到右第一个，没有就 `None`”。报告在前面已经全部算好，所以排在胜者后面的后端也有原因可留。
#
# **复杂度。** $b$ 个后端，能力门算 $b$ 次，选择 $O(b)$。真实系统若能力检查很贵，会在第一个可用处停下；代价是后面的后端没有原因可查。
#
# **常见错误**
#
# | 写法 | 后果 | 哪一格抓住 |
# |---|---|---|
# | 循环里不 `break` | 取到最后一个可用的 | `todo3_priority` |
# | `next(...)` 没有缺省值 | `StopIteration` | `todo3_fallback` |
# | `capability_reports[0]` | 后面可用的选不到；空列表 `IndexError` | `todo3_position`、`todo3_no_backend` |
# | `max(reports, key=...)` | 空列表 `ValueError`，或选中不支持的 | `todo3_fallback`、`todo3_no_backend` |
# | `selected = False` | `False is not None`，然后下标出错 | `todo3_fallback` |
# | `backends.sort(...)` | 改了调用者的列表 | `todo3_pure` |
#
# **评分说明。** 可见 20 分，隐藏 12 分。除 `todo3_own_gate` 和 `todo3_all`（共 4 分）外，都用表代替学生的 TODO 2，所以 TODO 2 错了不会在这里重复扣分；表里的结论与后端的真实字段一致，因此不调用 `evaluate_backend_capability`、自己重写整段的学生也按行为得分。没做 TODO 2 而做了 TODO 3 的，`todo3_own_gate` 和 `todo3_all` 会报“请先完成 TODO 2”。

# %% [markdown] slug="together-text"
# ### 4.4 合在一起：一层模型，两个后端（Putting it together）
#
# 三个函数做完后，运行下面这一格。它把一层模型的算子串变成一张分派表：每个候选走哪条路，被谁拒绝，为什么。

# %% 一层模型的分派表 slug="together"
layer_ops = ['residual_add', 'rms_norm', 'linear_qkv', 'rope', 'attention', 'linear_gate', 'silu', 'multiply']
layer_backends = [
    {'name': 'fused_fp8', 'patterns': ['swiglu'], 'dtypes': ['float8'], 'devices': ['cuda'], 'max_seq_len': 8192},
    {'name': 'fused_half', 'patterns': ['swiglu', 'residual_rmsnorm'], 'dtypes': ['float16', 'bfloat16'],
     'devices': ['cuda'], 'max_seq_len': 4096, 'supports_dynamic_shape': True},
]
layer_workload = {'dtype': 'float16', 'device': 'cuda', 'seq_len': 2048, 'dynamic_shape': True}

try:
    for item in identify_fusion_candidates(layer_ops):
        plan = dispatch_candidate(item, layer_workload, layer_backends)
        where = f"[{item['start']}, {item['end']})"
        print(f"{where} {item['pattern']:17s} -> {plan['execution_path']} ({plan['decision']})")
        for backend_name, why in plan['rejected_backends'].items():
            print(f"         {backend_name}: {', '.join(why)}")
except NotImplementedError as todo:
    print(todo)

# %% [markdown] slug="together-reading"
# 读这张表时注意：`optimized` 只说明**分派器选了这条路**，并没有说某个融合 kernel 跑了。那是第五步的问题。

# %% [markdown] slug="stop-here"
# ## 🛑 STOP HERE
#
# 先自己做完三个 TODO，跑过上面全部的测试，再往下看。卡住了，先看提示，再重读报错里写的那一步。
#
# 真的做不下去时，参考答案和讲解在这里：[教师版 notebook]({{blob:solutions/04_execution_dispatch/04_execution_dispatch.ipynb}})。看完请关掉它，凭自己的理解再写一遍。

# %% [markdown] slug="step-5"
# ## 第五步 可选实验：eager 与 torch.compile（Optional experiment）

# %% [markdown] slug="step-5-questions"
# 前四步回答“能不能派给它”。这一步回答“派过去以后，真的更快吗”。
#
# 我们比较同一个模型的两条路径：**eager**（逐个算子执行）和 **compiled**（`torch.compile`，后端是 Inductor）。主动改变的只有 token 数 $T$。
#
# | 想知道什么 | 固定什么 | 观察什么 |
# |---|---|---|
# | 算得对吗（correctness） | 权重、输入、随机种子 | 两条路径的输出差；各自与 float64 结果的最大误差 |
# | 收益随形状怎么变（sensitivity to shape） | 模型、dtype、线程数；每个形状单独编译，静态形状 | 每个 $T$ 的中位数、P95、加速比及其区间 |
# | 到底执行了什么（path executed） | 被计时的那个函数本身 | 图的数目、断图数、重编译数、profiler 里的 kernel |
# | 显存代价多大（memory cost） | 调用前已经分配的显存 | 一次调用的峰值，以及比调用前多出的部分（只有 GPU 有） |
#
# 这一步不计分，批改时也不运行。没有 GPU 也能做：CPU 上走的是同一段代码。所有代码都已写好，你只需要改 5.1 的设置。

# %% [markdown] slug="step-5-1"
# ### 5.1 设置（Settings）
#
# | `RUN_MODE` | 做什么 | 需要什么 |
# |---|---|---|
# | `'dry_run'` | 不测量，只告诉你怎么打开实验 | 无 |
# | `'real_cpu'` | 在 CPU 上真测：float32，单线程 | C++ 编译器（Linux 上是 `g++`） |
# | `'real_gpu'` | 在 GPU 上真测：用 `GPU_DTYPE` | CUDA 和 `torch.compile` |
#
# - 每个形状测 `GPU_REPEATS * GPU_ROUNDS` = 120 对。想给 P95 一个有限的 95% 置信上界，至少要 59 个样本；30 个不够。
# - `'real_cpu'` 用默认大小就够快：两种负载连编译在内，2 核机器上不到一分钟。机器慢就把 `GPU_HIDDEN_SIZE` 改小。对数不要少于 100。
# - `'real_cpu'` 不用 float16：这里测过 $T=256$ 的一个矩阵乘，float16 的耗时是 float32 的 3.9 倍。容差也收紧到 `1e-4`，因为 `2e-2` 是给 float16 准备的。
# - 想保留每次结果，就换 `RUN_LABEL`。已有文件的标签会被拒绝；只有 `'default'` 会被替换。

# %% slug="step-5-settings" tags=["settings"]
RUN_MODE = "dry_run"  # 'dry_run' | 'real_cpu' | 'real_gpu'
RUN_LABEL = "default"
PROFILE_ID = "INF-CUDA-MECHANISM"
GPU_RESULT_PATH = f"benchmarks/results/inf_execution_dispatch_compile_{RUN_LABEL}.json"

GPU_DTYPE = "float16"
GPU_TOKEN_COUNTS = [1, 32, 256]
GPU_HIDDEN_SIZE = 1024
GPU_WARMUP = 10
GPU_REPEATS = 30  # 每轮的对数
GPU_ROUNDS = 4  # 轮数：一共 30 * 4 = 120 对
GPU_ATOL = GPU_RTOL = 2e-2

# %% [markdown] slug="step-5-2"
# ### 5.2 运行并保存（Run and save）
#
# 计时实验很容易骗人。下面左边是常见写法，中间是我们看到的后果，右边是本章的做法。数字都是写这一章时在一台 2 核 CPU（AMD EPYC，torch 2.13）上测的。
#
# | 常见写法 | 后果 | 本章的做法 |
# |---|---|---|
# | 先测完 eager，再测完 compiled；有一个形状大于 1.0 倍就算赢 | 让同一个 eager 函数跟自己比（A/A），60 次里有 59 次“赢了” | 两条路径挨着测，先后随机；看区间，不看一个点。同样 60 次，赢 0 次 |
# | 在循环里反复用同一个编译结果，换三个形状 | 三个形状只编译出 2 张图：第二个形状起变成动态形状 | 每个形状先 `torch._dynamo.reset()`，再用 `dynamic=False` 编译 |
# | 静态编译 12 个形状，不重置 | 只有 8 张图，后 4 个形状悄悄走 eager，没有报错 | 同上，并统计计时期间的重编译数 |
# | 剖析第一次调用 | 排在最前面的全是编译器自己的事件 | 预热以后再剖析，而且剖析的就是被计时的那个函数 |
#
# 完整的清单在章末的“常见误区”。
#
# 工具分成几小段。不必逐行读完，先看每个函数的第一行说明。
#
# **工具一：统计与判定。** 判定只有三种：`faster`、`tie`、`slower`。区间必须整个越过噪声带。噪声带取 5% 和 A/A 对照偏差中较大的一个。

# %% 共用：导入 slug="exp-imports" include="assets/cells/exp_imports.py" tags=["experiment"]

# %% 共用：统计量 slug="exp-statistics" include="assets/cells/exp_statistics.py" tags=["experiment"]

# %% 共用：区间、噪声带与判定 slug="exp-verdict" include="assets/cells/exp_verdict.py" tags=["experiment"]

# %% [markdown] slug="step-5-tools-timing"
# **工具二：配对计时。** GPU 是异步的，所以计时前后都要同步；还要先冲掉 L2 缓存，否则第二次调用会占便宜。CPU 上缓存是热的，结果文件会写明这一点。
# 每测完一轮（eager，compiled），接着测一轮（eager，eager）。后一轮就是 A/A 对照：它本该等于 1，偏多少就是噪声多大。

# %% 共用：同步与线程 slug="exp-timing" include="assets/cells/exp_timing.py" tags=["experiment"]

# %% 共用：成对计时 slug="exp-pairs" include="assets/cells/exp_pairs.py" tags=["experiment"]

# %% 共用：配对比较 slug="exp-measure" include="assets/cells/exp_measure.py" tags=["experiment"]

# %% [markdown] slug="step-5-tools-evidence"
# **工具三：编译与证据。** 证据分三级：
#
# | `evidence.level` | 说明什么 | 不能说明什么 |
# |---|---|---|
# | `none` | 没有捕获到图 | 一切 |
# | `capture_only` | Dynamo 交出了图 | 生成的 kernel 真的运行了 |
# | `kernel_observed` | profiler 在被计时的函数里看见了生成的 kernel | 某个模式一定按你想的方式融合了 |
#
# 最后一格要小心。CPU 上的 kernel 名（例如 `cpp_fused_add_mean_mul_pow_rsqrt_0`）只列出里面有哪些算子。
# 不同的写法可以得到同一个名字，所以光看名字不能证明哪个模式被融合了。

# %% 共用：重新编译 slug="exp-compile" include="assets/cells/exp_compile.py" tags=["experiment"]

# %% 共用：kernel 证据 slug="exp-evidence" include="assets/cells/exp_evidence.py" tags=["experiment"]

# %% [markdown] slug="step-5-tools-row"
# **工具四：测一个形状。** 显存要看“多出来的部分”：总峰值里还有权重和输入。编译时间单独记；`break_even_calls` 是要调用多少次才能把编译的时间赚回来。

# %% 共用：数值误差与显存 slug="exp-numerics" include="assets/cells/exp_numerics.py" tags=["experiment"]

# %% 共用：首次调用 slug="exp-shape" include="assets/cells/exp_shape.py" tags=["experiment"]

# %% 共用：一个形状的完整测量 slug="exp-row" include="assets/cells/exp_row.py" tags=["experiment"]

# %% [markdown] slug="step-5-tools-report"
# **工具五：决策与结果文件。** `decide_from_rows` 就是 5.4 那张决策表。它只看数据，不测量，所以可以用手写的数据检验。
# 结果先写进临时文件，再改名；写到一半断电，旧文件还在。

# %% 共用：决策 slug="exp-decide" include="assets/cells/exp_decide.py" tags=["experiment"]

# %% 共用：汇总 slug="exp-summary" include="assets/cells/exp_summary.py" tags=["experiment"]

# %% 共用：硬件说明 slug="exp-hardware" include="assets/cells/exp_hardware.py" tags=["experiment"]

# %% 共用：拼成结果 slug="exp-report" include="assets/cells/exp_report.py" tags=["experiment"]

# %% 共用：运行模式 slug="exp-mode" include="assets/cells/exp_mode.py" tags=["experiment"]

# %% 共用：安全地写文件 slug="exp-file" include="assets/cells/exp_file.py" tags=["experiment"]

# %% 共用：逐个形状测量 slug="exp-matrix" include="assets/cells/exp_matrix.py" tags=["experiment"]

# %% 共用：先读第 1 章的预检 slug="exp-preflight" include="assets/cells/exp_preflight.py" tags=["experiment"]

# %% [markdown] slug="step-5-workloads"
# **两种负载（workloads）。** 第一种是 `ResidualSwiGLU`，它有两个大矩阵乘：
#
# $$n = \mathrm{RMSNorm}(x) \odot w, \qquad y = x + \mathrm{SiLU}(n W_g^\top) \odot (n W_u^\top)$$
#
# 第二种是 `MemoryBoundChain`，没有矩阵乘，时间都花在搬数据上：
#
# $$h = x + r, \qquad y = h + \mathrm{SiLU}(\mathrm{RMSNorm}(h) \odot w) \odot u$$
#
# 融合省的是中间结果的读写和 kernel 启动，不省矩阵乘。先猜一猜：哪一种负载收益大？$T$ 变大，收益变大还是变小？

# %% slug="step-5-models" tags=["experiment"]
def rms_norm(x, weight, eps=1e-6):
    """x: (T, H)，weight: (H,) → (T, H)。"""
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


class ResidualSwiGLU(torch.nn.Module):
    inputs = 1  # forward 的参数个数

    def __init__(self, hidden):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(hidden) + 0.5)  # U(0.5, 1.5)：漏乘权重就会露馅
        self.gate = torch.nn.Linear(hidden, hidden, bias=False)
        self.up = torch.nn.Linear(hidden, hidden, bias=False)

    def forward(self, x):  # (T, H) → (T, H)
        normed = rms_norm(x, self.weight)
        return x + torch.nn.functional.silu(self.gate(normed)) * self.up(normed)


class MemoryBoundChain(torch.nn.Module):
    inputs = 3

    def __init__(self, hidden):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(hidden) + 0.5)

    def forward(self, x, residual, up):  # 三个 (T, H) → (T, H)
        hidden = x + residual
        return hidden + torch.nn.functional.silu(rms_norm(hidden, self.weight)) * up


# %% slug="step-5-plan" tags=["experiment"]
# 名字 → (模型, 文件名后缀, 额外的 token 数)。第二种负载便宜，多测两个大的 T，好看出转折。
WORKLOADS = {"ResidualSwiGLU": (ResidualSwiGLU, "", []), "MemoryBoundChain": (MemoryBoundChain, "chain", [1024, 2048])}


def make_plan(device, workload):
    """5.1 的设置 → 一次实验的全部参数。CPU 上改用 float32 和更严的容差，其余不变。"""
    on_cpu = device == "cpu"
    return {
        "workload": workload,
        "semantic_id": "INF-EXECUTION-DISPATCH",
        "profile_id": PROFILE_ID,
        "run_label": RUN_LABEL,
        "device": device,
        "dtype": "float32" if on_cpu else GPU_DTYPE,
        "token_counts": sorted({*GPU_TOKEN_COUNTS, *WORKLOADS[workload][2]}),
        "hidden_size": GPU_HIDDEN_SIZE,
        "warmup": GPU_WARMUP,
        "repeats": GPU_REPEATS,
        "rounds": GPU_ROUNDS,
        "atol": min(GPU_ATOL, 1e-4) if on_cpu else GPU_ATOL,
        "rtol": min(GPU_RTOL, 1e-4) if on_cpu else GPU_RTOL,
        "seed": 0,
    }


# %% slug="step-5-run" tags=["experiment"]
def case_maker(plan):
    """→ make_case(T)：返回 (模型, 输入)。所有形状用同一份权重。"""
    torch.manual_seed(plan["seed"])
    place = {"device": plan["device"], "dtype": getattr(torch, plan["dtype"])}
    model = WORKLOADS[plan["workload"]][0](plan["hidden_size"]).to(**place).eval()

    def make_case(token_count):
        shape = (token_count, plan["hidden_size"])
        return model, tuple(2.5 * torch.randn(shape, **place) for _ in range(model.inputs))

    return make_case


def run_workloads(device):
    """每种负载测一遍，各写一个文件。"""
    for name, (_, suffix, _) in WORKLOADS.items():
        plan = make_plan(device, name)
        run_experiment(result_path(GPU_RESULT_PATH, device, suffix), case_maker(plan), plan)


experiment_on = experiment_device(RUN_MODE, PROFILE_ID)
if experiment_on is None:
    print("dry_run：什么也没有测。想真测，把 5.1 的 RUN_MODE 改成 'real_cpu' 或 'real_gpu'，再从 5.1 往下运行。")
else:
    show_preflight()
    run_workloads(experiment_on)

# %% [markdown] slug="step-5-3"
# ### 5.3 读结果、画图（Read and plot）
#
# 下面几格只读文件，从不测量。图也只从保存好的 JSON 画。这样，别人拿到你的文件，能看到跟你一模一样的数字和图。

# %% 共用：读结果 slug="exp-reader" include="assets/cells/exp_reader.py" tags=["reader"]

# %% slug="step-5-read" tags=["reader"]
print_report(newest_result(GPU_RESULT_PATH))
print("-" * 20)
print_report(newest_result(GPU_RESULT_PATH, "chain"))

# %% 共用：画时间与加速比 slug="exp-plot" include="assets/cells/exp_plot.py" tags=["plot"]

# %% 共用：画一份结果 slug="exp-figure" include="assets/cells/exp_figure.py" tags=["plot"]

# %% [markdown] slug="step-5-plot-swiglu"
# **怎么读图。** 左图是每次调用的时间，两个轴都是对数轴：实线是中位数，虚线是 P95。右图是加速比，大于 1 表示编译后更快。
# 灰带是噪声带，竖线是 95% 区间；点落在灰带里，或者竖线碰到灰带，都只能算打平。金色星号是被接受的形状。
#
# 你还没有自己的结果时，画的是录好的样例。样例来自一台 2 核 CPU（AMD EPYC，torch 2.13），标题里写着。

# %% slug="sample-swiglu" sample="assets/samples/inf_execution_dispatch_compile_sample_cpu.json" tags=["plot"]
# 录好的样例：ResidualSwiGLU，真实的一次 CPU 测量。

# %% slug="plot-swiglu" tags=["plot"]
plot_saved(newest_result(GPU_RESULT_PATH), RECORDED_SAMPLE)
plt.show()

# %% slug="sample-chain" sample="assets/samples/inf_execution_dispatch_compile_sample_chain_cpu.json" tags=["plot"]
# 录好的样例：MemoryBoundChain，同一台机器。

# %% slug="plot-chain" tags=["plot"]
plot_saved(newest_result(GPU_RESULT_PATH, "chain"), RECORDED_SAMPLE)
plt.show()

# %% [markdown] slug="step-5-4"
# ### 5.4 解释与决定（Interpret and decide）
#
# **先读样例。** 加速比是 eager 中位数除以 compiled 中位数。
#
# | $T$ | ResidualSwiGLU | 判定 | MemoryBoundChain | 判定 |
# |---:|---:|---|---:|---|
# | 1 | 0.89 | `slower` | 0.66 | `slower` |
# | 32 | 0.95 | `tie` | 0.84 | `slower` |
# | 256 | 1.00 | `tie` | 1.32 | `faster` |
# | 1024 | 没有测 | | 1.50 | `faster` |
# | 2048 | 没有测 | | 5.26 | `faster` |
#
# - **$T$ 很小时，编译反而慢。** 编译后的函数每次调用都要先查 guard、过一层运行时包装。这笔开销不随 $T$ 变。活太少，省下的不够付。
# - **ResidualSwiGLU 没有一个形状赢。** 它的时间几乎都花在两个矩阵乘上。融合不碰矩阵乘，能省的只是零头。
# - **MemoryBoundChain 有转折点**，在 32 和 256 之间。它整条链融合成一个 kernel，中间结果不用写回内存，所以 $T$ 越大越划算。
# - **别只看一个数。** $T=2048$ 的 5.26 测得很稳：区间 [5.20, 5.30]，A/A 对照 [0.99, 1.02]。差别是真的，原因却不全是融合。和 $T=1024$ 比，数据多一倍，eager 却慢了 7 倍（1.34 → 9.43 ms）。
#   这时每个中间结果有 8 MiB，glibc 用完就还给内核，下次再要回来；同一台机器上数过，eager 每次调用约有 8000 次缺页（page fault）。用环境变量 `MALLOC_TRIM_THRESHOLD_`、`MALLOC_MMAP_THRESHOLD_` 和
#   `MALLOC_TOP_PAD_` 让 glibc 留住内存，缺页归零，eager 降到约 2.9 ms，融合就只剩约 1.7 倍。
#
# **再做决定。** 下表和 `decide_from_rows` 一致。
#
# | 结果 | `decision` | 下一步 |
# |---|---|---|
# | 没有失败；每个形状都输出正确、至少有一张图、没有断图、没有重编译；至少一个 `faster` 的形状是 `kernel_observed`；`slower` 的形状不比 `faster` 多 | `accept_for_selected_shapes` | 只给赢的形状分桶，放进真实模型再测一遍 |
# | 有形状赢，但上面的条件缺了一条 | `tune_or_fallback` | 调整分桶，检查算子和断图 |
# | 没有形状赢，或者有失败，或者输出不对 | `tune_or_fallback` | 保留 eager，写下形状和原因 |
#
# 接受的只是 `accepted_token_counts` 里的形状，其余形状仍走 eager。没被接受时，原因在 `extension.decision_reasons`。
#
# **最后分清楚：什么是测出来的，什么是读来的。** “`torch.compile` 成功了”只证明编译后的路径可以用。某个融合 kernel 有没有运行，要看它的名字，或者更完整的 profile。
#
# | 说法 | 依据 |
# |---|---|
# | 上面的加速比、判定、CPU kernel 名，以及 5.2 表里的后果 | 在一台 2 核 CPU 上测的（torch 2.13） |
# | 每次调用有固定开销 | 在同一台 CPU 的 profile 里看到了 `TorchDynamo Cache Lookup`、`AOTDispatcher Runtime Wrapper Prologue` 等主机事件 |
# | GPU 的 kernel 名以 `triton_` 开头；CUDA event 计时；冲刷 L2；显存峰值 | 来自 PyTorch 文档和源码。**这里没有 GPU，`real_gpu` 一次也没有运行过** |
#
# 换一台机器，数字会变，转折点也会移动。所以结果文件里总要写明硬件。

# %% [markdown] slug="questions"
# ## 思考题（Questions to think on）
#
# 1. 模式表 `{ab, bcd}`，输入 `a b c d`。最左优先得到 `ab`，剩下 `c d` 没有融合；若选 `bcd`，只剩一个 `a`。哪一种更快？要知道哪些信息才能回答？
# 2. 把一个后端的 `max_seq_len` 从 4096 改成 8192，哪些测试的结论会变？为什么“没写 `max_seq_len`”按 0 算，而不按无穷大算？
# 3. 所有后端都要评估，代价是多做几次检查。什么时候值得在第一个可用处就停？你会失去什么？
# 4. `rejected_backends` 以名字为键。两个后端同名会怎样？你会怎样改这个数据结构？
# 5. 一个请求明确要求用 `fused_fp8`，而它不支持。应当悄悄回退到 eager，还是抛异常？分别适合什么场合？（{{chapter:08_capstone|第 8 章}}会要求你选。）
# 6. 真实的图是 DAG，不是一串算子：SwiGLU 的 `silu` 和 `multiply` 之间隔着 `linear_up`。本章的“连续匹配”还找得到它吗？（{{chapter:05_graph_capture|第 5 章}}从这里开始。）
#
# <details><summary>一点线索</summary>
#
# 1：每个模式各省多少访存和启动，还有测量；节点数不是时间。2：只有边界上的那些；能力门宁可误拒，不可误收。3：检查很贵、而且不需要诊断信息时；会失去胜者之后的原因。4：后写的覆盖先写的；可以用列表，或要求名字唯一。5：自动选择可以回退，明确的请求办不到就该说出来。6：找不到；要在图上匹配，不能在列表上匹配。
#
# </details>

# %% [markdown] slug="mistakes"
# ## 常见误区（Common mistakes）
#
# **关于分派**
#
# - **“编译成功，所以用上了融合 kernel。”** `torch.compile` 成功只说明编译后的分派可用。某个融合 kernel 有没有跑，要看它的名字，或者更完整的 profile。
# - **“后端装好了，所以能用。”** 能不能用，取决于这一个候选、这一个输入。换个 dtype 或长度，结论就可能变。
# - **“回退就是失败。”** 回退是正确性的保证。真正的问题是**悄悄**回退：没有原因，就没有人知道慢在哪里。
# - **“候选越多越好，融合越大越好。”** 更大的 kernel 占更多寄存器，限制更多，也更难查错。
#
# **关于测量：为什么那种“常见写法”的测量格是错的**
#
# 下面的数字都来自双核 CPU 上的测量（torch 2.13）；换一台机器数字会变，错处不变。第五步的代码就是为了避开它们。
#
# 1. **检查的图不是计时的图。** `torch._dynamo.explain` 会重置 dynamo；之后计时的是另一次编译的结果。
# 2. **profile 录到的是编译。** 重置后的第一次调用会触发编译；在 CPU 上，列出来的“算子”全是编译器自己的事件。
# 3. **循环里反复 `torch.compile(model)`，并不会为每个形状单独编译。** 编译结果挂在代码对象上：第二种长度变成动态形状，长度 1 单独特化，满 8 份之后的调用悄悄走 eager。要每个形状先 `torch._dynamo.reset()`，再用 `dynamic=False`，并在**真正计时的那个可调用对象**上检查图。
# 4. **“某个形状超过 1.0 倍就算快”会收下噪声。** 同一个 eager 函数和它自己比（A/A 测试），60 次里有五十多次“更快”。改用配对 bootstrap 的置信下界超过 1.05，只剩 0 到 2 次。
# 5. **先测完一组 eager，再测一组 compiled。** 同一个进程、同一个形状，分组测得 0.118 倍，交错测得 1.015 倍。机器的状态在两组之间变了。
# 6. **30 个样本的 P95 没有有限的置信上界。** 单侧 95% 至少要 59 个样本。取分位数用整数的最近秩：$\lceil 95n/100\rceil$。
# 7. **权重全是 1、输入的 RMS 也是 1。** 漏乘了权重、漏掉了归一化，结果都看不出来。要给输入换个尺度，权重从 $U(0.5, 1.5)$ 里取。
# 8. **kernel 的名字证明不了模式。** 在 CPU 上，`norm(x)`、`norm(x + y)` 和“同时返回 h 与 norm(h)”三种写法，融合 kernel 的名字一样。
# 9. **`key_averages()` 把主机上的算子和它启动的 kernel 都列出来。** 要按设备类型过滤，否则会数两遍。另外 `graph_break_count` 有时会是 -1。
# 10. **峰值内存里含有权重和输入。** 要记下测量前已分配的量，报告差值。

# %% [markdown] slug="summary-text"
# ## 收尾：总测试（Final check）
#
# 三组测试一起再跑一遍。全部通过时打印一行 ✅。这一格不计分。

# %% 总测试 slug="summary" tags=["summary"] nbgrader={"grade": false, "grade_id": "summary", "locked": true, "schema_version": 3, "solution": false, "task": false}
def test_inference_execution_dispatch():
    test_candidate_identification()
    test_backend_capability_gate()
    test_dispatch_and_fallback()
    print('✅ 三个 TODO 的可见测试全部通过：候选、能力门、分派与回退都符合规则。')


test_inference_execution_dispatch()

# %% [markdown] slug="links"
# ## 小结与链接（Summary and links）
#
# - 融合候选 → 能力门 → 执行 → 证据，是四个不同的问题，要分别回答。
# - 规则要明确：最左、最长、不重用；缺省值要保守；拒绝要留下全部原因。
# - “选了这条路”和“这个 kernel 跑了”，中间还差一份证据。
#
# **下一步**：{{chapter:05_graph_capture|第 5 章 图捕获：从 torch.export 到合法的融合组}}。那里的图有分支，列表上的扫描不够用了。
#
# **延伸阅读**
#
# 官方文档三篇，建议先读：[torch.compile](https://docs.pytorch.org/docs/stable/generated/torch.compile.html)、[scaled_dot_product_attention（SDPA）](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html)、[TorchInductor GPU Profiling](https://docs.pytorch.org/docs/stable/torch.compiler_inductor_profiling.html)。
#
# 文中的出处：
#
# 1. PyTorch，[torch.compile Troubleshooting](https://docs.pytorch.org/docs/stable/torch.compiler_troubleshooting.html)：不支持的代码只是失去一次优化机会，不会崩溃。
# 2. PyTorch，[torch.compile](https://docs.pytorch.org/docs/stable/generated/torch.compile.html)：编译结果缓存在代码对象上；到 `recompile_limit`（默认 8）后退回 eager。
# 3. PyTorch，[scaled_dot_product_attention](https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html)：每种融合实现各有输入限制；用不了时以警告说明原因。
# 4. Ivanov 等，[Data Movement Is All You Need](https://arxiv.org/abs/2007.00072)：Transformer 训练受限于数据移动。
# 5. vLLM，[Fusion torch.compile passes](https://docs.vllm.ai/en/stable/design/fusions/)：各融合的条件，以及“按自己的场景开关各测一次”。
# 6. vLLM，[qk_norm_rope_fusion](https://docs.vllm.ai/en/latest/api/vllm/compilation/passes/fusion/qk_norm_rope_fusion/)：dtype 不是 bfloat16 / float16 时不启用，并记入日志。
# 7. vLLM，[rms_quant_fusion](https://docs.vllm.ai/en/stable/api/vllm/compilation/passes/fusion/rms_quant_fusion/)：带 residual 的模式登记在前，因为普通的是它的子集。
#
# 算子本身：RoPE [arXiv:2104.09864](https://arxiv.org/abs/2104.09864)，RMSNorm [arXiv:1910.07467](https://arxiv.org/abs/1910.07467)，SwiGLU [arXiv:2002.05202](https://arxiv.org/abs/2002.05202)。
