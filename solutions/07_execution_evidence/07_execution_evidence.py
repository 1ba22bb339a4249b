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
# # INF-EXECUTION-EVIDENCE. Compiled Is Not Fused | 执行证据：编译了不等于融合了
#
# [![在 Colab 打开本章](https://colab.research.google.com/assets/colab-badge.svg)]({{colab}}) [![在 ModelScope 打开本章](https://img.shields.io/badge/Open%20in-ModelScope-624aff)]({{modelscope}})
#
# **难度**：Medium ｜ **环境**：CPU-first + 可选单卡 GPU ｜ **标签**：profiler、证据、配对计时、bootstrap、决策 ｜ **预计用时**：90 分钟（第一至三步 20，三个 TODO 55，其余 15；第五步的实验另计）｜ 版本 {{version}}
#
# 同事说：“我加了 `torch.compile`，融合生效了，快了 8%。”这里面有三句话：编译了，融合了，变快了。每一句都要有自己的证据。本章教你怎样取证，怎样算，怎样下结论。
#
# **学完本章，你能够**
#
# 1. 从一份 profile 里挑出真正的 kernel，并说清证据够到哪一级；
# 2. 用配对（paired）的计时和 bootstrap 给加速比一个区间；
# 3. 按固定的优先次序作决定：失败 > 数值错 > 断图或重编译 > 证据 > 收益；
# 4. 解释为什么“同一个函数跟自己比”（A/A）永远不该被接受。
#
# **先修**：{{chapter:04_execution_dispatch|第 4 章 推理融合与后端分派}}。第一至四步只用标准库和录好的数据；第五步才用 torch。
#
# **上一章**：{{chapter:06_dynamic_shapes|第 6 章 动态形状}} ｜ **下一章**：{{chapter:08_capstone|第 8 章 综合项目}}
#
# **怎样用这个 notebook**：从上到下读，从上到下运行。遇到 TODO，把 `raise NotImplementedError(...)` 那一行换成你的代码，再运行它后面的测试。没做的 TODO 会在测试里报出自己的编号；这不是错误，是提醒。

# %% [markdown] slug="step-1"
# ## 第一步 四句话，四份证据（Four claims, four proofs）
#
# | 说法（claim） | 需要的证据（evidence） | 还不能说什么 |
# |---|---|---|
# | `torch.compile(f)` 返回了 | 没有抛异常 | 一切。编译发生在第一次**调用**时 |
# | 捕获到了图（captured） | profile 里有编译区的标记 | 图里的算子融合了 |
# | 融合 kernel 跑了（kernel observed） | 它的名字出现在 kernel 事件里 | 更快；或者“就是我想的那个模式” |
# | 划算（pays） | 配对计时的区间，越过 A/A 的噪声带 | 换一个形状、换一台机器也划算 |
#
# ![四级台阶：torch.compile 返回、捕获到图、融合 kernel 运行、划算；每一级下面写着它需要的证据，后一级不能由前一级推出]({{raw:assets/figures/07_ladder.png}})
#
# *图 1　四级台阶。站在第一级，不能说第三级的话。*
#
# 前三级对应结果文件里的 `evidence.level`：
#
# - `none`：什么也没看见；
# - `capture_only`：看见了编译区，没看见融合 kernel；
# - `kernel_observed`：看见了融合 kernel。
#
# **kernel 的名字也有限度。** Inductor 给生成的 kernel 起名时，只列出里面有哪些算子。在 CPU（torch 2.13）上，`norm(x)`、`norm(x + y)`、`(h, norm(h))` 三种写法得到的 kernel 都叫 `cpp_fused_add_mean_mul_pow_rsqrt_0`：第一种里的 `add` 只是加 `eps`。第五步的实验会重做一遍这个检查。所以 `kernel_observed` 的意思是“生成的融合 kernel 运行了”，不是“某个模式一定被融合了”。

# %% [markdown] slug="step-2"
# ## 第二步 一份 profile 里有什么（What is in a profile）
#
# `torch.profiler` 把一段时间里发生的事件都记下来，`key_averages()` 再按名字归并。下面是录好的四份真实记录，同一条逐元素的链（residual + RMSNorm + SiLU + 乘），$T=64$，$H=1024$，float32，一个线程：
#
# | 名字 | 剖析了什么 |
# |---|---|
# | `eager` | 没有编译，5 次调用 |
# | `first_call` | 编译后的**第一次**调用：编译就发生在这里 |
# | `warmed` | 预热之后，5 次调用 |
# | `warmed_no_kernel_events` | 同上，但没有打开 Inductor 的 `cpp.enable_kernel_profile` |
#
# 每一行是一个字典：`name` 名字，`device` 事件在哪一边（`'cpu'` 或 `'cuda'`），`annotation` 是不是标注，`count` 出现几次，`self_us` 自身时间（µs）。

# %% 四份录好的 profile nbgrader={"grade": false, "grade_id": "recorded_profiles", "locked": true, "schema_version": 3, "solution": false, "task": false} sample="assets/samples/07_recorded_cpu.json"
import json

# 录好的数据：四份 profile，以及四个形状的配对计时（第四步末尾用）。

# %% 取出四份 profile nbgrader={"grade": false, "grade_id": "profiles", "locked": true, "schema_version": 3, "solution": false, "task": false}
RECORDED = json.loads(json.dumps(RECORDED_SAMPLE))  # 另存一份：画图时还会用到 RECORDED_SAMPLE 这个名字
PROFILES = {name: profile['events'] for name, profile in RECORDED['profiles'].items()}

# %% 看一眼 slug="look-at-profiles"
for profile_name, events in PROFILES.items():
    print(f'{profile_name}: {len(events)} rows, {sum(event["count"] for event in events)} calls')
    for event in events[:4]:
        print(f'    {event["count"]:4d} x {event["self_us"]:8d} us  {event["name"][:60]}')

# %% [markdown] slug="step-2-kinds"
# 看 `first_call`：70 行，加起来 3.5 秒。排在前面的全是编译器自己的活（`… (dynamo_timed)`），后面还有一批 `aten::` 和 `prims::`：它们是**追踪时**在假张量上走过的算子，不是你的计算。真正的 kernel 只有一行，排在中间，0.16 毫秒。谁拿这份 profile 说“慢在 `PyCodeCache`”，或者说“还在跑 `aten::mul`，所以没有融合”，都错了。
#
# 事件分三种：
#
# | 种类 | 怎么认 |
# |---|---|
# | 编译（compile） | 名字带 `(dynamo_timed)` 或 `compile_id=`；编译的每一个阶段还有一行只写阶段名；再加上 `PythonDispatchMode` |
# | kernel | GPU：在设备那一边的事件，去掉标注和内存拷贝。CPU：没有“设备那一边”，只能靠名字认 Inductor 生成的 kernel（`cpp_fused…`） |
# | 主机（host） | 其余一切：`aten::…`、查缓存、包装层、标注…… |
#
# PyTorch 的文档提醒：剖析之前要先预热，等编译完成<sup>[1]</sup>。vLLM 更进一步：剖析的那次运行若触发了编译，直接断言失败<sup>[2]</sup>。
#
# 下面给出两样工具：认编译事件的函数，和两个记号。

# %% 认出编译事件 nbgrader={"grade": false, "grade_id": "event_names", "locked": true, "schema_version": 3, "solution": false, "task": false}
import re

FUSED_NAME = re.compile(r'triton_|cpp_fused')  # 用 .search：真实的名字前面可能还有 graph_0_
GRAPH_MARKERS = ('Torch-Compiled Region', '## Call CompiledFxGraph')  # 名字以它们开头：进入了编译区


def compile_event_names(events):
    """这份 profile 里属于编译的名字（set）。一个阶段有三行：'X'、'X (dynamo_timed)'、'X_data: …compile_id=…'。"""
    names = {'PythonDispatchMode'}
    for event in events:
        name = event['name']
        if name.endswith(' (dynamo_timed)'):
            names |= {name, name[:-len(' (dynamo_timed)')]}
        elif 'compile_id=' in name:
            names |= {name, name.split('_data:')[0]}
    return names

# %% [markdown] slug="step-3"
# ## 第三步 怎样比才公平（A fair comparison）
#
# **先测完 A，再测完 B，会怎样？** 机器不会等你：频率在变，别的进程来来去去。两段时间隔得远，碰到的就不是同一台机器。
#
# ![左图：先测完 A 再测完 B，机器越来越慢，B 看起来就慢；右图：成对地测、先后随机，两条路径碰到同样的机器，中位数几乎相等]({{raw:assets/figures/07_pairing.png}})
#
# *图 2　同一台越来越慢的机器（示意）。A 和 B 其实一样快。左边分两段测，B 显得慢；右边成对测，差别消失。*
#
# **配对（pairing）。** 第 $i$ 对里，$a_i$ 和 $b_i$ 挨着测，先后随机。加速比是中位数之比：
#
# $$s = \frac{\operatorname{median}(a_1,\dots,a_N)}{\operatorname{median}(b_1,\dots,b_N)}$$
#
# $a$ 是旧路径（eager），$b$ 是新路径（compiled）；$s>1$ 表示新路径更快。用中位数，因为计时的尾巴很长，一次 4 毫秒的打断就能毁掉平均值。
#
# **一个点不够，要区间。** 自助法（bootstrap）<sup>[3]</sup>把手里的 $N$ 对当作总体：从里面有放回地抽 $N$ 对，算一次 $s$；重复 $n$ 次，得到 $n$ 个 $s$；掐头去尾各 2.5%，剩下的范围就是 95% 区间。**抽的单位是“一对”**：$a_i$ 与 $b_i$ 总是一起被抽中。分开抽，就丢掉了“它们碰到同一段机器状态”这个信息。
#
# **还要一把尺子：A/A 对照。** 让 A 跟它自己比，结果本该是 1。实际偏多远，噪声就有多大。取 A/A 区间偏离 1 的幅度，再与一个最低门槛（这里 5%）比，取大的：
#
# $$\beta = \max\left(\text{min\_gain},\ h_{AA}-1,\ \frac{1}{l_{AA}}-1\right)$$
#
# 区间 $[l,h]$ 整个在 $1+\beta$ 以上，才算 `faster`；整个在 $1/(1+\beta)$ 以下，算 `slower`；否则是打平（`tie`）。
#
# **推论：A/A 数据永远不会被接受。** 若候选的区间就是 A/A 的区间，那么 $l\le h\le 1+\beta$，而 `faster` 要求 $l>1+\beta$，不可能。反过来，“中位数比大于 1 就算快”的规则，会把大约一半的纯噪声当成收益；有三个形状、中一个就算，收下的就更多。第五步会在你的机器上数给你看。

# %% [markdown] slug="step-4"
# ## 第四步 练习：取证、比较、决定（The exercise）
#
# | 函数 | 机制 | 约束 | 测试里的证据 |
# |---|---|---|---|
# | `kernel_evidence(events, device)` | 分三类，按名字累加 | 编译优先；CPU 看名字，GPU 看设备 | 四份真实 profile、手写的 GPU 事件 |
# | `paired_speedup(a, b, seed, n)` | 中位数比 + 配对 bootstrap | 同样的种子，同样的结果 | 离群值、强相关的对、已知的区间 |
# | `decide(rows, policy)` | 五个问题，固定的先后 | A/A 永远不接受 | 每种理由单独出现、同时出现 |

# %% [markdown] slug="todo1-text"
# ### 4.1 TODO 1：取证（kernel evidence）
#
# 用时 20 分钟 ｜ 难度 ●●○ ｜ 要写的：一个循环，加上 `level` 的三分支
#
# 返回 `{'kernels': {名字: 次数}, 'dropped': {'compile': 次数, 'host': 次数}, 'level': 字符串}`。
#
# **规则**（测试只依据这几条）
#
# 1. **累加的是 `count`**，不是行数。同一个名字可能有好几行，加在一起。
# 2. **编译优先**：名字在 `compile_event_names(events)` 里的行，不论设备、不论长得像什么，都记进 `dropped['compile']`。
# 3. **kernel**：不是编译、`annotation` 为 `False`、`device` 字段等于所问的 `device`，并且
#    - `device == 'cuda'`：名字不以 `Memcpy` 或 `Memset` 开头。其余设备事件都算，名字不限：cuBLAS 的矩阵乘也是 kernel；
#    - `device == 'cpu'`：名字**含有** `cpp_fused`（真实的名字是 `graph_0_cpp_fused_…`，不在开头）。
# 4. **其余**记进 `dropped['host']`。别的设备上的事件、标注、拷贝，都在这里。
# 5. **级别**：
#    - `kernels` 里**至少有一个**名字与 `FUSED_NAME` 相配（`FUSED_NAME.search(name)`）→ `'kernel_observed'`；
#    - 否则，有**任何一行**的名字以 `GRAPH_MARKERS` 之一开头 → `'capture_only'`；
#    - 否则 `'none'`。只有编译事件而没有标记，也是 `'none'`：编译可能半路失败了。
# 6. **`events` 为空**：`{'kernels': {}, 'dropped': {'compile': 0, 'host': 0}, 'level': 'none'}`。`dropped` 总有这两个键。
# 7. **只读**：不改 `events`；同样的输入给同样的结果。`device` 只会是 `'cpu'` 或 `'cuda'`。
#
# 为什么规则 5 不是“有 kernel 就算看见”？在 GPU 上，eager 也会启动 kernel。有 kernel，不等于有**融合** kernel。
#
# 一行规格，可以运行：`search` 在哪里找，`startswith` 能不能收元组。

# %% TODO 1 的规格 slug="todo1-spec"
(bool(FUSED_NAME.search('graph_0_cpp_fused_mul_0')), 'Torch-Compiled Region: 0/0'.startswith(GRAPH_MARKERS))

# %% [markdown] slug="todo1-hints"
# <details><summary>提示 1（方向）</summary>
#
# 一行事件只进一个去处。按次序问：是编译吗？是 kernel 吗？都不是，就是主机。
#
# </details>
# <details><summary>提示 2（工具）</summary>
#
# 字典的 `.get(键, 0)` 给还没见过的名字一个起点，再加上这一行的 `count`。编译的名字先求一次，放在循环外面。
#
# </details>
# <details><summary>提示 3（级别）</summary>
#
# `any(FUSED_NAME.search(name) for name in kernels)` 只看留下来的 kernel；图的标记要在全部 `events` 里找。
#
# </details>

# %% TODO 1 取证 todo=1 stub="请先完成 TODO 1：把事件分进 kernels 和 dropped，再定 level（规则见 4.1）" nbgrader={"grade": false, "grade_id": "todo1", "locked": false, "schema_version": 3, "solution": true, "task": false}
def kernel_evidence(events, device):
    """一份 profile 的证据。

    events：[{'name', 'device', 'annotation', 'count', 'self_us'}, ...]；device：'cpu' 或 'cuda'。
    返回 {'kernels': {名字: 次数}, 'dropped': {'compile': 次数, 'host': 次数}, 'level': 字符串}。
    """
    kernels, dropped = {}, {'compile': 0, 'host': 0}
    # TODO 1：填 kernels 和 dropped，再给 level 赋值
    ### BEGIN SOLUTION
    compiling = compile_event_names(events)
    for event in events:
        name, count = event['name'], event['count']
        here = event['device'] == device and not event['annotation']
        if device == 'cuda':
            is_kernel = here and not name.startswith(('Memcpy', 'Memset'))
        else:
            is_kernel = here and 'cpp_fused' in name
        if name in compiling:
            dropped['compile'] += count
        elif is_kernel:
            kernels[name] = kernels.get(name, 0) + count
        else:
            dropped['host'] += count
    level = 'none'
    if any(FUSED_NAME.search(name) for name in kernels):
        level = 'kernel_observed'
    elif any(event['name'].startswith(GRAPH_MARKERS) for event in events):
        level = 'capture_only'
    ### END SOLUTION
    return {'kernels': kernels, 'dropped': dropped, 'level': level}

# %% [markdown] slug="todo1-tests-text"
# **TODO 1 的测试。** 每一格检查一种行为，各有各的分。报错时看四行：应得、实得、可能的原因、请重读哪里。CPU 的事件取自上面的真实记录；GPU 的事件是手写的教学数据（编写本章的机器没有 GPU）。

# %% 返回三个键，空输入也一样 todo=1 step="4.1 规则 6" nbgrader={"grade": true, "grade_id": "todo1_record", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
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


def told(case, problem, want, shown, cause, step):
    return f'{case}：{problem}\n  应得：{want}\n  实得：{shown}\n  可能的原因：{cause}\n  请重读：{step}'


def result_of(case, function, args, want, cause, step):
    """function(*args)；没做的 TODO 照原样报出自己的编号，别的异常当作答错。"""
    try:
        return function(*args)
    except (ArithmeticError, AttributeError, LookupError, NameError, StopIteration, TypeError, ValueError) as error:
        shown = f'{type(error).__name__}: {error}'
        raise AssertionError(told(case, '函数抛出了异常', want, shown, cause, step)) from error


def check(case, function, args, want, cause, step):
    got = result_of(case, function, args, want, cause, step)
    problem = difference(got, want)
    assert not problem, told(case, problem, repr(want), repr(got), cause, step)


def evidence(level, compile_calls, host_calls, **kernels):
    return {'kernels': kernels, 'dropped': {'compile': compile_calls, 'host': host_calls}, 'level': level}


def event(name, count=1, device='cpu', annotation=False, self_us=10):
    return {'name': name, 'device': device, 'annotation': annotation, 'count': count, 'self_us': self_us}


def check_evidence_record():
    cause = '三个键 kernels、dropped、level 都要有；dropped 总有 compile 和 host；level 要先有缺省值'
    check('events 为空', kernel_evidence, ([], 'cpu'), evidence('none', 0, 0), cause, '4.1 规则 6')
    one = [event('graph_0_cpp_fused_mul_0', 2)]
    want = evidence('kernel_observed', 0, 0, graph_0_cpp_fused_mul_0=2)
    check('只有一个 kernel', kernel_evidence, (one, 'cpu'), want, 'kernels 是 {名字: 次数}：次数是 count；CPU 上名字含 cpp_fused 就算，不必以它开头', '4.1 开头')


check_evidence_record()

# %% 预热后的 profile：只留下 kernel todo=1 step="4.1 规则 3" nbgrader={"grade": true, "grade_id": "todo1_clean", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
CHAIN_KERNEL = 'graph_0_cpp_fused_add_mean_mul_pow_rsqrt_silu_0'


def check_clean_profile():
    cause = "CPU 上名字含 cpp_fused 的才是 kernel（不是以它开头）；标记、查缓存、包装层都是主机事件"
    want = evidence('kernel_observed', 0, 25, **{CHAIN_KERNEL: 5})
    check('录好的 warmed', kernel_evidence, (PROFILES['warmed'], 'cpu'), want, cause, '4.1 规则 3 和规则 4')
    cause = 'eager 的 aten::… 是主机算子，一个也不算 kernel'
    check('录好的 eager', kernel_evidence, (PROFILES['eager'], 'cpu'), evidence('none', 0, 115), cause, '4.1 规则 4')


check_clean_profile()

# %% 被污染的 profile：编译事件和追踪时的算子都丢掉 todo=1 step="4.1 规则 2" nbgrader={"grade": true, "grade_id": "todo1_polluted", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
def check_polluted_profile():
    step = '4.1 规则 2'
    cause = '编译的名字要从 compile_event_names(events) 取，全部记进 compile；追踪时的 aten::、prims:: 是主机事件'
    want = evidence('kernel_observed', 54, 123, **{CHAIN_KERNEL: 1})
    check('录好的 first_call', kernel_evidence, (PROFILES['first_call'], 'cpu'), want, cause, step)
    events = [event('load cpp_fused_mul_0 (dynamo_timed)', 2), event('load cpp_fused_mul_0'), event('aten::mul')]
    cause = '名字里有 cpp_fused，但它是编译阶段的事件：先问是不是编译，再问是不是 kernel'
    check('编译事件长得像 kernel', kernel_evidence, (events, 'cpu'), evidence('none', 3, 1), cause, step)


check_polluted_profile()

# %% 次数：累加 count，同名的行相加 todo=1 step="4.1 规则 1" nbgrader={"grade": true, "grade_id": "todo1_counts", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
def check_counts():
    events = [
        event('graph_0_cpp_fused_mul_0', 4, self_us=0), event('aten::mm', 6), event('graph_0_cpp_fused_mul_0', 3),
        event('graph_0_cpp_fused_add_1', 2), event('aten::mm', 1),
    ]
    want = evidence('kernel_observed', 0, 7, graph_0_cpp_fused_mul_0=7, graph_0_cpp_fused_add_1=2)
    cause = '加的是每一行的 count，不是行数；同一个名字有几行就加几次，不要覆盖；self_us 是 0 也算'
    check('同名的两行', kernel_evidence, (events, 'cpu'), want, cause, '4.1 规则 1')


check_counts()

# %% GPU：看设备，不看名字 todo=1 step="4.1 规则 3" nbgrader={"grade": true, "grade_id": "todo1_cuda", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
def check_cuda_events():
    step = '4.1 规则 3 和规则 4'
    events = [
        event('aten::mm', 5), event('triton_poi_fused_mul_silu_0', 5), event('cuLaunchKernel', 10),
        event('triton_poi_fused_mul_silu_0', 5, device='cuda'), event('ampere_sgemm_64x64_tn', 5, device='cuda'),
        event('Memcpy HtoD (Pageable -> Device)', 2, device='cuda'), event('Memset (Device)', 1, device='cuda'),
    ]
    want = evidence('kernel_observed', 0, 23, triton_poi_fused_mul_silu_0=5, ampere_sgemm_64x64_tn=5)
    cause = '设备那一边的都是 kernel（矩阵乘也是），Memcpy、Memset 除外；主机那一边同名的 triton_ 行不能再算一遍'
    check('GPU 上的一份 profile', kernel_evidence, (events, 'cuda'), want, cause, step)
    cause = 'CPU 的 kernel 名含 cpp_fused；主机上的 triton_ 行只是启动它的那一下'
    check('同一份，问 CPU', kernel_evidence, (events, 'cpu'), evidence('none', 0, 33), cause, step)


check_cuda_events()

# %% 级别：三级各是什么 todo=1 step="4.1 规则 5" nbgrader={"grade": true, "grade_id": "todo1_level", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
def check_levels():
    step = '4.1 规则 5'
    cause = '有编译区的标记、没有融合 kernel：是 capture_only'
    args = (PROFILES['warmed_no_kernel_events'], 'cpu')
    check('录好的 warmed_no_kernel_events', kernel_evidence, args, evidence('capture_only', 0, 25), cause, step)
    eager = [event('aten::mul', 3), event('vectorized_elementwise_kernel', 3, device='cuda')]
    cause = '有 kernel 不等于有融合 kernel：eager 在 GPU 上也启动 kernel'
    want = evidence('none', 0, 3, vectorized_elementwise_kernel=3)
    check('GPU 上的 eager', kernel_evidence, (eager, 'cuda'), want, cause, step)
    failed = [event('dynamo (dynamo_timed)'), event('dynamo'), event('aten::mul')]
    cause = '只有编译事件、没有标记：编译可能半路失败了，是 none'
    check('编译半路失败', kernel_evidence, (failed, 'cpu'), evidence('none', 2, 1), cause, step)


check_levels()

# %% TODO 1 的全部可见检查 todo=1 step="4.1 TODO 1" nbgrader={"grade": true, "grade_id": "todo1_all", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
def test_kernel_evidence():
    for one_check in (
        check_evidence_record, check_clean_profile, check_polluted_profile,
        check_counts, check_cuda_events, check_levels,
    ):
        one_check()


test_kernel_evidence()

# %% 标注从不是 kernel todo=1 step="4.1 规则 3" nbgrader={"grade": true, "grade_id": "todo1_annotation", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# 隐藏测试：评分时检查规则 3 的 annotation
### BEGIN HIDDEN TESTS
def check_annotations():
    events = [
        event('ProfilerStep#3', 2, device='cuda', annotation=True),
        event('## Call CompiledFxGraph abc ##', 2, device='cuda', annotation=True),
        event('my cpp_fused region', 4, annotation=True), event('sgemm', 2, device='cuda'),
    ]
    cause, step = 'annotation 为 True 的行是标注，记进 host；但图的标记在哪一行都算数', '4.1 规则 3 和规则 5'
    check('设备上的标注', kernel_evidence, (events, 'cuda'), evidence('capture_only', 0, 8, sgemm=2), cause, step)
    check('主机上的标注', kernel_evidence, (events, 'cpu'), evidence('capture_only', 0, 10), cause, step)


check_annotations()
### END HIDDEN TESTS

# %% 只读，可重复 todo=1 step="4.1 规则 7" nbgrader={"grade": true, "grade_id": "todo1_pure", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 隐藏测试：评分时检查规则 7
### BEGIN HIDDEN TESTS
def check_pure_evidence():
    import copy

    events = [event('graph_0_cpp_fused_mul_0', 4), event('dynamo (dynamo_timed)'), event('aten::mm', 6)]
    before, step = copy.deepcopy(events), '4.1 规则 7'
    want = evidence('kernel_observed', 1, 6, graph_0_cpp_fused_mul_0=4)
    for case in ('第一次调用', '第二次调用'):
        check(case, kernel_evidence, (events, 'cpu'), want, '结果依赖上一次调用', step)
        assert events == before, f'events 被改了。请重读：{step}'


check_pure_evidence()
### END HIDDEN TESTS

# %% [markdown] slug="todo1-instructor" todo=1 tags=["instructor-only"]
# #### 讲解：TODO 1（只在教师版）
#
# **为什么这样写。** 每一行恰好进一个去处，次序是“编译、kernel、主机”。编译放在最前，因为编译阶段的名字什么都可能像：阶段名里会带 kernel 名。级别只看留下来的 kernel，不看被丢掉的行。
#
# **复杂度。** 一遍扫描，$O(n)$。
#
# | 写法 | 后果 | 哪一格抓住 |
# |---|---|---|
# | `kernels[name] += 1` 或覆盖 | 次数错 | `todo1_counts` |
# | `name.startswith('cpp_fused')` | 真实的名字以 `graph_0_` 开头，全漏掉 | `todo1_clean` |
# | 只丢 `(dynamo_timed)` | 同一阶段的另外两行算成主机 | `todo1_polluted` |
# | 先问 kernel，后问编译 | 像 kernel 的编译事件混进来 | `todo1_polluted` |
# | GPU 上也按 `FUSED_NAME` 筛 | 丢了 cuBLAS、cuDNN 的 kernel | `todo1_cuda` |
# | 不看 `device` 字段 | 主机上的同名行再算一遍 | `todo1_cuda` |
# | `if kernels: 'kernel_observed'` | GPU 上的 eager 被当成融合 | `todo1_level` |
# | 有编译事件就算 `capture_only` | 半路失败也成了“捕获到” | `todo1_level` |
#
# **评分说明。** 可见 29 分，隐藏 5 分。`dropped` 的两个计数是评分的一部分，因为规则 2 与规则 4 的差别只在那里看得见。

# %% [markdown] slug="todo2-text"
# ### 4.2 TODO 2：配对比较（paired speed-up）
#
# 用时 20 分钟 ｜ 难度 ●●○ ｜ 要写的：`ratios`（$n$ 个 bootstrap 加速比）、`speedup`、`low`、`high`
#
# `a`、`b` 是两个等长的列表，`a[i]` 与 `b[i]` 是第 $i$ 对的时间。返回 `{'speedup': 浮点数, 'ci95': [low, high]}`。输入的检查已经给出：长度不等、空列表、有数不是正的有限数、`n < 1`，都抛 `ValueError`。
#
# **规则**（测试只依据这几条）
#
# 1. **点估计**：`speedup = median(a) / median(b)`，用 `statistics.median`（偶数个时取中间两个的平均）。它是**中位数之比**，不是“每对之比的中位数”，也不是平均数之比。
# 2. **重抽**：`rng = random.Random(seed)`；重复 `n` 次：`picks = rng.choices(range(N), k=N)`，$N$ 是对数；这一次的比值是 `median(a[i] for i in picks) / median(b[i] for i in picks)`。`a` 和 `b` 用**同一组** `picks`：抽的是对。
# 3. **区间**：把 `n` 个比值从小到大排好，`tail = n * 25 // 1000`，`low` 是第 `tail` 个，`high` 是倒数第 `tail` 个，都从 0 数起：`ratios[tail]` 与 `ratios[n - 1 - tail]`。
# 4. **可重复**：同样的 `a, b, seed, n`，结果一模一样；换 `seed`，区间会略有不同。不动全局的随机数状态：不用 `random.seed`，用自己的 `random.Random(seed)`。
# 5. **只读**：不改 `a` 和 `b`。
#
# 测试比较区间时留了容差（区间宽度的几个百分点），所以用别的抽法实现同一个 bootstrap 也能通过；但“分开抽”、“两端各去掉 5%”之类通不过。
#
# 一行规格，可以运行：`a` 处处是 `b` 的两倍。怎样抽，比值都应是 2；若 `a`、`b` 各抽各的，就不是了。

# %% TODO 2 的规格 slug="todo2-spec"
import random
import statistics

[statistics.median(2 * b for b in picked) / statistics.median(picked) for picked in ([1, 5, 5], [9, 1, 1], [5, 9, 9])]

# %% [markdown] slug="todo2-hints"
# <details><summary>提示 1（方向）</summary>
#
# 写一个小循环：抽一组下标，算一个比值，放进列表。循环完了再排序、取两端。
#
# </details>
# <details><summary>提示 2（工具）</summary>
#
# `rng.choices(range(N), k=N)` 是有放回的。`rng.sample` 是无放回的：抽满 $N$ 个就只是换个次序，比值永远不变，区间会缩成一个点。
#
# </details>
# <details><summary>提示 3（自查）</summary>
#
# `paired_speedup([2, 10, 18], [1, 5, 9], 0)` 应得 `{'speedup': 2.0, 'ci95': [2.0, 2.0]}`。
#
# </details>

# %% TODO 2 配对比较 todo=2 stub="请先完成 TODO 2：求 ratios、speedup、low、high（规则见 4.2）" nbgrader={"grade": false, "grade_id": "todo2", "locked": false, "schema_version": 3, "solution": true, "task": false}
import math
import random
import statistics


def paired_speedup(a, b, seed, n=1000):
    """a 对 b 的加速比和 95% 区间，配对 bootstrap。

    a、b：等长的正数列表，单位相同；seed：整数；n：重抽次数。返回 {'speedup': s, 'ci95': [low, high]}。
    """
    if len(a) != len(b) or not len(a) or n < 1:
        raise ValueError('a 和 b 要等长、非空，n 至少是 1')
    if not all(math.isfinite(value) and value > 0 for value in [*a, *b]):
        raise ValueError('时间要是正的有限数')
    # TODO 2：给 speedup、low、high 赋值
    ### BEGIN SOLUTION
    rng, size, ratios = random.Random(seed), len(a), []
    for _ in range(n):
        picks = rng.choices(range(size), k=size)
        ratios.append(statistics.median(a[i] for i in picks) / statistics.median(b[i] for i in picks))
    ratios.sort()
    tail = n * 25 // 1000
    low, high = ratios[tail], ratios[n - 1 - tail]
    speedup = statistics.median(a) / statistics.median(b)
    ### END SOLUTION
    return {'speedup': speedup, 'ci95': [low, high]}

# %% [markdown] slug="todo2-helper-text"
# 全局的随机数状态在你的进程里，测试从外面看不到。下面的辅助函数在里面看一眼，只把“变没变”告诉测试。

# %% 全局随机数变了没有 nbgrader={"grade": false, "grade_id": "global_random_moved", "locked": true, "schema_version": 3, "solution": false, "task": false}
def global_random_moved(a, b, seed):
    """调用 paired_speedup(a, b, seed, 20) 前后，random 模块的全局状态是否变了。"""
    import random

    before = random.getstate()
    paired_speedup(a, b, seed, 20)
    moved = random.getstate() != before
    random.setstate(before)
    return moved

# %% [markdown] slug="todo2-tests-text"
# **TODO 2 的测试。**

# %% 返回加速比和区间 todo=2 step="4.2 开头" nbgrader={"grade": true, "grade_id": "todo2_record", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
def close_to(got, want, tolerance=1e-9):
    return abs(got - want) <= tolerance


def paired(case, a, b, seed=0, n=100, cause='返回 {"speedup": 数, "ci95": [low, high]}', step='4.2 开头'):
    """paired_speedup 的结果，先查类型。"""
    want = "{'speedup': float, 'ci95': [low, high]}，low 不大于 high"
    got = result_of(case, paired_speedup, (list(a), list(b), seed, n), want, cause, step)
    good = isinstance(got, dict) and set(got) == {'speedup', 'ci95'} and isinstance(got['ci95'], (list, tuple))
    good = good and len(got['ci95']) == 2 and all(type(x) in (int, float) for x in [got['speedup'], *got['ci95']])
    assert good and got['ci95'][0] <= got['ci95'][1], told(case, '结果的样子不对', want, repr(got), cause, step)
    return got


def check_point(case, a, b, want, cause, step, **options):
    got = paired(case, a, b, cause=cause, step=step, **options)['speedup']
    assert close_to(got, want), told(case, 'speedup 不对', want, got, cause, step)


def check_interval(case, a, b, want, tolerance, cause, step, **options):
    got = paired(case, a, b, cause=cause, step=step, **options)['ci95']
    good = all(close_to(x, y, tolerance) for x, y in zip(got, want))
    assert good, told(case, 'ci95 不对', f'{want}，容差 {tolerance:.2g}', list(got), cause, step)


def check_pair_record():
    case, cause = '两对一样的时间', '返回 {"speedup": 数, "ci95": [low, high]}'
    check_point(case, [3.0, 3.0], [3.0, 3.0], 1.0, cause, '4.2 开头')
    check_interval(case, [3.0, 3.0], [3.0, 3.0], [1.0, 1.0], 1e-9, cause, '4.2 规则 3')


check_pair_record()

# %% 点估计：中位数之比 todo=2 step="4.2 规则 1" nbgrader={"grade": true, "grade_id": "todo2_median", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
def check_medians():
    step = '4.2 规则 1'
    cause = '用了平均数：一次被打断的调用就毁了它；应是中位数'
    check_point('十次里有一次被打断', [2.0] * 9 + [4000.0], [1.0] * 10, 2.0, cause, step)
    cause = '方向反了：是 a 除以 b，大于 1 表示 b 更快'
    check_point('a 慢，b 快', [30.0, 30.0, 30.0], [10.0, 10.0, 10.0], 3.0, cause, step)
    cause = '应是中位数之比 median(a) / median(b)，不是每对之比的中位数'
    check_point('两种“中位”不同', [1.0, 2.0, 6.0], [4.0, 1.0, 3.0], 2.0 / 3.0, cause, step)
    cause = '偶数个时取中间两个的平均（statistics.median 就是这样）'
    check_point('四对', [1.0, 2.0, 4.0, 9.0], [1.0, 1.0, 1.0, 1.0], 3.0, cause, step)


check_medians()

# %% 抽的是对 todo=2 step="4.2 规则 2" nbgrader={"grade": true, "grade_id": "todo2_pairs", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
def check_pairing():
    step = '4.2 规则 2'
    b = [1.0 + 0.5 * (i * 7 % 20) for i in range(20)]  # 机器忽快忽慢，1 到 10.5
    case, cause = 'a 处处是 b 的 2 倍', 'a 和 b 各抽各的；应当用同一组下标，抽“对”'
    check_interval(case, [2 * x for x in b], b, [2.0, 2.0], 1e-9, cause, step)
    cause = 'bootstrap 是有放回地抽（rng.choices）；无放回只是换个次序，区间会缩成一点'
    got = paired('忽快忽慢的 a，不变的 b', b, [1.0] * 20, cause=cause, step=step)['ci95']
    text = told('忽快忽慢的 a，不变的 b', '区间没有宽度', 'low < high', got, cause, step)
    assert got[1] - got[0] > 0.5, text


check_pairing()

# %% 区间：两端各去掉 2.5% todo=2 step="4.2 规则 3" nbgrader={"grade": true, "grade_id": "todo2_interval", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
def noisy_pairs(size, seed):
    """size 对，a 约是 b 的 1.3 倍，各带 20% 的噪声。"""
    import random

    draw = random.Random(seed)
    b = [draw.gauss(1.0, 0.2) + 2.0 for _ in range(size)]
    return [1.3 * (x + draw.gauss(0, 0.3)) for x in b], b


KNOWN_INTERVAL, KNOWN_TOLERANCE = [1.2817, 1.3713], 0.0035  # 容差约是宽度的 4%


def check_known_interval():
    step, (a, b) = '4.2 规则 2 和规则 3', noisy_pairs(101, 11)
    cause = '两端各去掉 2.5%：tail = n * 25 // 1000；区间偏窄，看是不是去掉了 5%，或重抽的个数不是 N；偏宽，看是不是 a、b 各抽各的'
    check_interval('101 对，n=2000', a, b, KNOWN_INTERVAL, KNOWN_TOLERANCE, cause, step, n=2000)


check_known_interval()

# %% 同样的种子，同样的结果 todo=2 step="4.2 规则 4" nbgrader={"grade": true, "grade_id": "todo2_seed", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
def check_seed():
    step, (a, b) = '4.2 规则 4', noisy_pairs(31, 5)
    cause = '没有用 random.Random(seed)：每次调用的随机数都不同'
    first, again = (paired('种子 3', a, b, seed=3, n=100, step=step) for _ in range(2))
    assert first == again, told('同样的种子', '两次结果不同', first, again, cause, step)
    others = [paired(f'种子 {seed}', a, b, seed=seed, n=100, step=step)['ci95'] for seed in range(4, 10)]
    cause = '种子没有用上：写死了，或者忽略了'
    text = told('不同的种子', '六个种子的区间全都一样', '略有不同', first['ci95'], cause, step)
    assert any(list(ci) != list(first['ci95']) for ci in others), text


check_seed()

# %% TODO 2 的全部可见检查 todo=2 step="4.2 TODO 2" nbgrader={"grade": true, "grade_id": "todo2_all", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
def test_paired_speedup():
    for one_check in (check_pair_record, check_medians, check_pairing, check_known_interval, check_seed):
        one_check()


test_paired_speedup()

# %% 重抽 n 次 todo=2 step="4.2 规则 2" nbgrader={"grade": true, "grade_id": "todo2_resamples", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 隐藏测试：评分时检查 n 的作用
### BEGIN HIDDEN TESTS
def check_resamples():
    step, (a, b) = '4.2 规则 2 和规则 3', noisy_pairs(31, 8)
    got = paired('n=1', a, b, n=1, step=step)['ci95']
    text = told('n=1', '区间应是一个点', 'low == high', got, '没有用参数 n，次数写死了', step)
    assert got[0] == got[1], text
    widths = [paired('n=39', a, b, seed=s, n=39, step=step)['ci95'] for s in range(5)]
    cause = 'n=39 时 tail = 0，两端是最小和最大的比值，不会缩成一点'
    assert all(high - low > 0.02 for low, high in widths), told('n=39', '区间太窄', '最小到最大', widths, cause, step)


check_resamples()
### END HIDDEN TESTS

# %% 不动全局随机数，不改输入 todo=2 step="4.2 规则 4 和规则 5" nbgrader={"grade": true, "grade_id": "todo2_pure", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 隐藏测试：评分时检查规则 4 和规则 5
### BEGIN HIDDEN TESTS
def check_pure_pairs():
    a, b = noisy_pairs(15, 2)
    args = (list(a), list(b), 1, 50)
    result_of('15 对', paired_speedup, args, '', '', '4.2')
    assert args == (a, b, 1, 50), 'a 或 b 被改了（例如排了序）。请重读：4.2 规则 5'
    moved = result_of('全局随机数', global_random_moved, (a, b, 1), False, '', '4.2 规则 4')
    assert moved is False, '全局的随机数状态被动过（random.seed 或 random.choices）。请重读：4.2 规则 4'


check_pure_pairs()
### END HIDDEN TESTS

# %% 另一组数据的区间 todo=2 step="4.2 规则 2 和规则 3" nbgrader={"grade": true, "grade_id": "todo2_other_data", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 隐藏测试：评分时换一组数据、换一个种子
### BEGIN HIDDEN TESTS
def check_other_data():
    (a, b), cause, step = noisy_pairs(201, 11), '与规则 2 和规则 3 不符', '4.2 规则 2 和规则 3'
    check_interval('201 对', a, b, [1.2463, 1.3136], 0.0027, cause, step, n=2000, seed=17)
    a, b = noisy_pairs(101, 11)
    check_interval('101 对，对调', b, a, [1 / 1.3713, 1 / 1.2817], 0.0021, cause, step, n=2000, seed=18)


check_other_data()
### END HIDDEN TESTS

# %% [markdown] slug="todo2-instructor" todo=2 tags=["instructor-only"]
# #### 讲解：TODO 2（只在教师版）
#
# **为什么抽对。** 计时的噪声大半来自机器，同一对里的两次调用共享它。抽对，公共的部分在比值里消去；各抽各的，公共的部分变成两份独立的噪声，区间虚宽。规格里 `a = 2b` 的例子是极端情形：抽对得到一个点，各抽各的得到一个很宽的区间。
#
# **为什么容差行得通。** $n$ 次重抽得到的分位数自己也有误差，约是区间宽度的 $2\%/\sqrt{n/1000}$。测试取 $n=2000$、容差约为宽度的 4%：换一种抽法能过，两端各去掉 5%（每端差 5% 到 8%）过不了。
#
# | 写法 | 后果 | 哪一格抓住 |
# |---|---|---|
# | 两组 `picks` | 区间虚宽 | `todo2_pairs` |
# | `rng.sample(range(N), N)` | 无放回，区间成一点 | `todo2_pairs` |
# | `statistics.mean` | 一个离群值毁掉结果 | `todo2_median` |
# | `median(x / y for x, y in zip(a, b))` | 另一个统计量 | `todo2_median` |
# | `tail = n * 5 // 100` | 90% 区间 | `todo2_interval` |
# | `random.seed(seed)` | 动了别人的随机数 | `todo2_pure` |
# | 忽略 `n` | 次数写死 | `todo2_resamples` |
#
# **评分说明。** 可见 27 分，隐藏 6 分。输入检查由给出的代码负责，不计分。

# %% [markdown] slug="todo3-text"
# ### 4.3 TODO 3：决定（decide）
#
# 用时 15 分钟 ｜ 难度 ●●○ ｜ 要写的：每一行的判定，和五个问题
#
# `rows` 的一行是一个形状：
#
# | 键 | 类型 | 意思 |
# |---|---|---|
# | `token_count` | int | 这个形状的 $T$ |
# | `failure` | `None` 或 str | 失败的原因；失败的行**只有** `token_count` 和 `failure` 两个键 |
# | `output_close` | bool | 输出在容差之内 |
# | `graph_breaks`, `recompiles` | int | 断图数；计时期间的重编译数 |
# | `level` | str | TODO 1 的级别 |
# | `ci95`, `aa_ci95` | `[low, high]` | 加速比的区间；A/A 对照的区间 |
#
# `policy` 是 `{'min_gain': 0.05, 'required_level': 'kernel_observed'}`：最低收益，和要求的证据级别。级别的次序是 `none` < `capture_only` < `kernel_observed`，达到或超过要求就算够。
#
# 返回 `{'decision', 'reason', 'accepted', 'tie', 'slower'}`，后三个是 `token_count` 的列表，次序同 `rows`。
#
# **规则**（测试只依据这几条）
#
# 1. **每一行的判定**（失败的行没有判定，不进任何列表）：噪声带 $\beta=\max(\text{min\_gain},\ \text{aa\_high}-1,\ 1/\text{aa\_low}-1)$。`low > 1 + β` 是 `faster`；`high < 1 / (1 + β)` 是 `slower`；否则是 `tie`。恰好相等算 `tie`。
# 2. **`tie` 和 `slower` 列表**总是按判定填，与决定无关。
# 3. **五个问题，按次序问，第一个“是”就是 `reason`**，`decision` 是 `'tune_or_fallback'`，`accepted` 是 `[]`：
#
#    | 次序 | 问题 | `reason` |
#    |---|---|---|
#    | 1 | 有没有失败的行？ | `'failure'` |
#    | 2 | 有没有一行 `output_close` 不是 `True`？ | `'wrong_numbers'` |
#    | 3 | 有没有一行断图或重编译（不等于 0）？ | `'break_or_recompile'` |
#    | 4 | 有 `faster` 的行，却没有一个 `faster` 的行证据够？ | `'no_evidence'` |
#    | 5 | 没有 `faster` 的行，或 `slower` 的行比 `faster` 的行多？ | `'no_profit'` |
#
# 4. **都不是**：`decision` 是 `'accept_for_selected_shapes'`，`reason` 是 `None`，`accepted` 是 `faster` **并且**证据够的行。`faster` 而证据不够的，三个列表都不进。
# 5. **`rows` 为空**：没有 `faster` 的行，所以是 `'no_profit'`。
# 6. **只读**：不改 `rows` 和 `policy`。问题 1 至 3 看**所有**的行，不只看 `faster` 的。
#
# ![五个问题从左到右：失败、数值错、断图或重编译、胜者没有证据、没有净收益；任何一个回答“是”就停在 tune_or_fallback 并带上这个理由，全部“否”才接受]({{raw:assets/figures/07_precedence.png}})
#
# *图 3　五个问题的先后。前面的理由更严重：算错了的路径，快不快没有意义。*
#
# **为什么有失败就全部不接受？** 因为同一份代码在某个形状上失败，说明你还不了解它。先弄清楚，再谈收益。
#
# 一行规格，可以运行：同一个候选区间，A/A 越吵，噪声带越宽。

# %% TODO 3 的规格 slug="todo3-spec"
[round(max(0.05, high - 1, 1 / low - 1), 3) for low, high in ([0.99, 1.01], [0.98, 1.2], [0.5, 1.1])]

# %% [markdown] slug="todo3-hints"
# <details><summary>提示 1（方向）</summary>
#
# 先把没有失败的行分成 `faster`、`tie`、`slower` 三堆，再按次序问五个问题。
#
# </details>
# <details><summary>提示 2（工具）</summary>
#
# 级别的比较：`LEVELS = ['none', 'capture_only', 'kernel_observed']`，比 `LEVELS.index(...)`。不要直接比字符串：按字母排，`'capture_only' < 'kernel_observed' < 'none'`。
#
# </details>
# <details><summary>提示 3（骨架）</summary>
#
# 一串 `if … elif … elif …`，每一支给 `reason` 赋值，最后的 `else` 赋 `None`。问题 4 的前一半是“`faster` 不空”。
#
# </details>

# %% TODO 3 决定 todo=3 stub="请先完成 TODO 3：判定每一行，再按次序问五个问题（规则见 4.3）" nbgrader={"grade": false, "grade_id": "todo3", "locked": false, "schema_version": 3, "solution": true, "task": false}
LEVELS = ['none', 'capture_only', 'kernel_observed']


def decide(rows, policy):
    """凭一组形状的测量作决定。

    返回 {'decision', 'reason', 'accepted', 'tie', 'slower'}；后三个是 token_count 的列表，次序同 rows。
    """
    # TODO 3：给 faster、tie、slower（三个列表，放的是行）、accepted 和 reason 赋值
    ### BEGIN SOLUTION
    measured = [row for row in rows if row['failure'] is None]
    faster, tie, slower = [], [], []
    for row in measured:
        (low, high), (aa_low, aa_high) = row['ci95'], row['aa_ci95']
        band = max(policy['min_gain'], aa_high - 1, 1 / aa_low - 1)
        (faster if low > 1 + band else slower if high < 1 / (1 + band) else tie).append(row)
    required = LEVELS.index(policy['required_level'])
    accepted = [row for row in faster if LEVELS.index(row['level']) >= required]
    if len(measured) < len(rows):
        reason = 'failure'
    elif any(row['output_close'] is not True for row in measured):
        reason = 'wrong_numbers'
    elif any(row['graph_breaks'] != 0 or row['recompiles'] != 0 for row in measured):
        reason = 'break_or_recompile'
    elif faster and not accepted:
        reason = 'no_evidence'
    elif not faster or len(slower) > len(faster):
        reason = 'no_profit'
    else:
        reason = None
    ### END SOLUTION
    return {
        'decision': 'tune_or_fallback' if reason else 'accept_for_selected_shapes',
        'reason': reason,
        'accepted': [] if reason else [row['token_count'] for row in accepted],
        'tie': [row['token_count'] for row in tie],
        'slower': [row['token_count'] for row in slower],
    }

# %% [markdown] slug="todo3-tests-text"
# **TODO 3 的测试。** 数据都是手写的，与 TODO 1、TODO 2 无关：前面错了，不影响这里。

# %% 接受：快的、打平的、慢的各归各处 todo=3 step="4.3 规则 4" nbgrader={"grade": true, "grade_id": "todo3_accept", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
POLICY = {'min_gain': 0.05, 'required_level': 'kernel_observed'}


def row(token_count, low, high, aa=(0.99, 1.01), **changes):
    """一个没有毛病的形状，区间是 [low, high]。"""
    good = {
        'token_count': token_count, 'failure': None, 'output_close': True, 'graph_breaks': 0, 'recompiles': 0,
        'level': 'kernel_observed', 'ci95': [low, high], 'aa_ci95': list(aa),
    }
    return dict(good, **changes)


def failed(token_count):
    return {'token_count': token_count, 'failure': 'RuntimeError: out of memory'}


def decision(reason, accepted=(), tie=(), slower=()):
    verdict = 'tune_or_fallback' if reason else 'accept_for_selected_shapes'
    lists = {'accepted': list(accepted), 'tie': list(tie), 'slower': list(slower)}
    return {'decision': verdict, 'reason': reason, **lists}


def check_decision(case, rows, want, cause, step, policy=POLICY):
    check(case, decide, ([dict(one) for one in rows], dict(policy)), want, cause, step)


def check_accept():
    rows = [row(1, 0.60, 0.70), row(256, 1.30, 1.40), row(32, 0.98, 1.04), row(1024, 2.0, 2.5)]
    cause = '三个列表放 token_count，次序同 rows；没有理由时 reason 是 None（不是空串）'
    check_decision('四个形状', rows, decision(None, [256, 1024], [32], [1]), cause, '4.3 规则 1、2、4')
    rows = [row(64, 1.30, 1.40, level='capture_only'), row(128, 1.30, 1.40)]
    cause = 'faster 而证据不够的行，三个列表都不进'
    check_decision('两个都快，一个没有证据', rows, decision(None, [128]), cause, '4.3 规则 4')


check_accept()

# %% 判定：整个区间越过噪声带，相等算打平 todo=3 step="4.3 规则 1" nbgrader={"grade": true, "grade_id": "todo3_verdict", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
def check_verdicts():
    step, exact = '4.3 规则 1', {'min_gain': 0.25, 'required_level': 'kernel_observed'}
    cause = '看了区间的上端或中点；要整个区间越过噪声带：faster 看 low'
    check_decision('[1.02, 1.90]', [row(8, 1.02, 1.90)], decision('no_profit', tie=[8]), cause, step)
    cause = '看了区间的下端；slower 看 high'
    check_decision('[0.50, 0.99]', [row(8, 0.50, 0.99)], decision('no_profit', tie=[8]), cause, step)
    cause = '恰好相等算 tie：faster 是 low > 1 + β，slower 是 high < 1 / (1 + β)'
    check_decision('low 恰好是 1 + β', [row(8, 1.25, 1.5)], decision('no_profit', tie=[8]), cause, step, exact)
    check_decision('high 恰好是 1 / (1 + β)', [row(8, 0.5, 0.8)], decision('no_profit', tie=[8]), cause, step, exact)
    cause = 'slower 的门槛是 1 / (1 + β) = 0.8，不是 1 - β = 0.75'
    check_decision('high = 0.78', [row(8, 0.5, 0.78)], decision('no_profit', slower=[8]), cause, step, exact)


check_verdicts()

# %% 噪声带：取最低收益和 A/A 偏差中最大的 todo=3 step="4.3 规则 1" nbgrader={"grade": true, "grade_id": "todo3_band", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
def check_band():
    step = '4.3 规则 1'
    cause = 'A/A 的上端偏到 1.3，[1.2, 1.4] 越不过去：β 要含 aa_high - 1'
    check_decision('A/A = [0.99, 1.30]', [row(8, 1.2, 1.4, (0.99, 1.30))], decision('no_profit', tie=[8]), cause, step)
    cause = 'A/A 的下端偏到 0.5，β 是 1 / 0.5 - 1 = 1，不是 1 - 0.5'
    check_decision('A/A = [0.50, 1.01]', [row(8, 1.6, 1.9, (0.50, 1.01))], decision('no_profit', tie=[8]), cause, step)
    cause = 'A/A 很安静时，β 也不小于 min_gain'
    check_decision('A/A = [1.00, 1.00]', [row(8, 1.01, 1.04, (1.0, 1.0))], decision('no_profit', tie=[8]), cause, step)
    cause = 'β 取三个数里最大的一个，不是加起来'
    check_decision('A/A = [0.99, 1.18]', [row(8, 1.2, 1.4, (0.99, 1.18))], decision(None, [8]), cause, step)
    cause = '每一行用自己的 A/A，不能用第一行的或全体最大的'
    rows = [row(8, 1.2, 1.4, (0.99, 1.30)), row(16, 1.2, 1.4)]
    check_decision('两行，A/A 不同', rows, decision(None, [16], [8]), cause, step)
    cause = 'A/A 数据跟自己比，永远不会是 faster'
    rows = [row(8, 1.02, 1.3, (1.02, 1.3)), row(16, 1.06, 1.07, (1.06, 1.07))]
    check_decision('拿 A/A 当候选', rows, decision('no_profit', tie=[8, 16]), cause, step)


check_band()

# %% 理由的先后 todo=3 step="4.3 规则 3" nbgrader={"grade": true, "grade_id": "todo3_precedence", "locked": true, "points": 7, "schema_version": 3, "solution": false, "task": false}
def check_precedence():
    step, fast = '4.3 规则 3 与图 3', row(64, 1.5, 1.6)
    wrong, broken = row(8, 1.5, 1.6, output_close=False), row(16, 1.5, 1.6, graph_breaks=1)
    recompiled, unseen = row(24, 1.5, 1.6, recompiles=2), row(32, 1.5, 1.6, level='none')
    slow = [row(1, 0.5, 0.6), row(2, 0.5, 0.6), row(4, 0.5, 0.6)]
    cause = '五个问题按次序问，第一个“是”就是理由；有理由时 accepted 是 []，而 tie、slower 照填；级别按 LEVELS 的次序比，不按字母'
    cases = [
        ('失败与算错', [failed(0), wrong, fast], 'failure'), ('算错与断图', [broken, wrong, fast], 'wrong_numbers'),
        ('断图与没有证据', [unseen, broken], 'break_or_recompile'), ('重编译', [fast, recompiled], 'break_or_recompile'),
        ('没有证据与没有收益', [unseen, *slow], 'no_evidence'), ('慢的更多', [fast, *slow], 'no_profit'),
    ]
    for case, rows, reason in cases:
        slower = [one['token_count'] for one in rows if one in slow]
        check_decision(case, rows, decision(reason, slower=slower), cause, step)
    cause = '问题 1 至 3 看所有的行：打平的行算错了，也是算错'
    check_decision('打平的行算错', [fast, row(8, 0.99, 1.0, output_close=False)],
                   decision('wrong_numbers', tie=[8]), cause, '4.3 规则 6')


check_precedence()

# %% 收益：打平不算，慢的不能更多 todo=3 step="4.3 规则 3" nbgrader={"grade": true, "grade_id": "todo3_profit", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
def check_profit():
    step = '4.3 规则 3 的问题 4、5 和规则 5'
    fast, slow, even = row(64, 1.5, 1.6), row(1, 0.5, 0.6), row(8, 0.99, 1.01)
    check_decision('一快一慢', [fast, slow], decision(None, [64], slower=[1]), '一样多不算“更多”', step)
    cause = '没有一行 faster：是 no_profit，不是 no_evidence'
    check_decision('打平，也没有证据', [dict(even, level='none')], decision('no_profit', tie=[8]), cause, step)
    check_decision('rows 为空', [], decision('no_profit'), 'rows 为空时没有 faster 的行，是 no_profit', step)
    rows = [fast, row(65, 1.5, 1.6, level='none'), slow, dict(slow, token_count=2)]
    cause = '与 slower 比的是全部 faster 的行，不只是证据够的；accepted 只收证据够的，级别按 LEVELS 的次序比'
    check_decision('两快两慢，一快没有证据', rows, decision(None, [64], slower=[1, 2]), cause, step)


check_profit()

# %% TODO 3 的全部可见检查 todo=3 step="4.3 TODO 3" nbgrader={"grade": true, "grade_id": "todo3_all", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
def test_decide():
    for one_check in (check_accept, check_verdicts, check_band, check_precedence, check_profit):
        one_check()


test_decide()

# %% A/A 数据永远不被接受 todo=3 step="第三步的推论" nbgrader={"grade": true, "grade_id": "todo3_aa", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 隐藏测试：评分时用许多组 A/A 数据当候选
### BEGIN HIDDEN TESTS
def check_aa_never_accepted():
    import random

    draw = random.Random(20260707)
    for _ in range(60):
        low = draw.uniform(0.4, 1.5)
        interval = (low, low + draw.uniform(0, 0.6))
        got = result_of('A/A', decide, ([row(8, *interval, interval)], dict(POLICY)), '不接受', '', '第三步的推论')
        ok = isinstance(got, dict) and got.get('accepted') == [] and got.get('reason') == 'no_profit'
        text = told(f'A/A {interval}', '接受了 A/A 数据', 'no_profit', got, '噪声带没有含 A/A 的偏差', '第三步的推论')
        assert ok, text


check_aa_never_accepted()
### END HIDDEN TESTS

# %% 按 policy 办 todo=3 step="4.3 开头" nbgrader={"grade": true, "grade_id": "todo3_policy", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# 隐藏测试：评分时换别的 policy
### BEGIN HIDDEN TESTS
def check_policy():
    cause, step = '门槛写死了；min_gain 和 required_level 都从 policy 取，级别按 none < capture_only < kernel_observed', '4.3 开头'
    loose = {'min_gain': 0.01, 'required_level': 'capture_only'}
    rows = [row(8, 1.03, 1.04, level='capture_only'), row(16, 1.03, 1.04, level='kernel_observed'), row(24, 1.03, 1.04, level='none')]
    check_decision('要求低', rows, decision(None, [8, 16]), cause, step, loose)
    check_decision('什么证据都行', rows, decision(None, [8, 16, 24]), cause, step, dict(loose, required_level='none'))
    strict = dict(loose, min_gain=0.2)
    check_decision('要求高', rows, decision('no_profit', tie=[8, 16, 24]), cause, step, strict)


check_policy()
### END HIDDEN TESTS

# %% 只读，可重复 todo=3 step="4.3 规则 6" nbgrader={"grade": true, "grade_id": "todo3_pure", "locked": true, "points": 1, "schema_version": 3, "solution": false, "task": false}
# 隐藏测试：评分时检查规则 6
### BEGIN HIDDEN TESTS
def check_pure_decide():
    import copy

    rows = [row(64, 1.5, 1.6), row(2, 0.5, 0.6), failed(7), row(1, 0.99, 1.0)]
    args = (rows, dict(POLICY))
    before, step = copy.deepcopy(args), '4.3 规则 6'
    for case in ('第一次调用', '第二次调用'):
        want = decision('failure', tie=[1], slower=[2])
        check(case, decide, args, want, '失败的行只有两个键，不进任何列表；结果不依赖上一次调用', step)
        assert args == before, f'rows 或 policy 被改了。请重读：{step}'


check_pure_decide()
### END HIDDEN TESTS

# %% [markdown] slug="todo3-instructor" todo=3 tags=["instructor-only"]
# #### 讲解：TODO 3（只在教师版）
#
# **为什么是这个次序。** 前面的理由使后面的问题失去意义：失败了，就没有完整的数据；算错了，快也没用；断图或重编译，说明计时的不是你以为的那张图；没有证据，不知道快从哪里来；最后才问值不值。
#
# | 写法 | 后果 | 哪一格抓住 |
# |---|---|---|
# | 看 `high > 1 + β` | 噪声成了收益 | `todo3_verdict` |
# | `1 - aa_low` 代替 `1 / aa_low - 1` | 噪声带偏窄 | `todo3_band` |
# | `1 - β` 代替 `1 / (1 + β)` | a、b 对调后不对称 | `todo3_verdict` |
# | 所有行共用一个 β | 安静的形状受连累 | `todo3_band` |
# | 直接比级别的字符串 | `'none'` 排在最后 | `todo3_accept` |
# | 只检查 `faster` 的行 | 别处算错了也接受 | `todo3_precedence` |
# | 有理由时还留着 `accepted` | 读的人以为接受了 | `todo3_precedence` |
#
# **评分说明。** 可见 29 分，隐藏 4 分。三个练习互不调用，错误不会连带扣分。第 4 章的 `decide_from_rows` 用同样的判定，但把全部理由都列出来；这里只报第一个，是为了让先后看得见。

# %% [markdown] slug="together-text"
# ### 4.4 合在一起：一份真实的记录（Putting it together）
#
# 记录里还有四个形状的配对计时，各 60 对，另有同样多的 A/A。录的时候，这台双核机器上还有别的任务在跑：正好看看噪声长什么样。

# %% 从记录到决定 slug="together" tags=["reader"]
def recorded_rows():
    """录好的计时 → decide 要的行。证据都来自 warmed 那份 profile（同一条链，T=64）。"""
    level = kernel_evidence(PROFILES['warmed'], 'cpu')['level']
    good = {'failure': None, 'output_close': True, 'graph_breaks': 0, 'recompiles': 0, 'level': level}
    for tokens, times in RECORDED['pairs'].items():
        ab = paired_speedup(times['eager_us'], times['compiled_us'], 0)
        aa = paired_speedup(times['aa_first_us'], times['aa_second_us'], 0)
        print(f'T={tokens:>4s}  speed-up {ab["speedup"]:.2f} in [{ab["ci95"][0]:.2f}, {ab["ci95"][1]:.2f}]'
              f'   A/A in [{aa["ci95"][0]:.2f}, {aa["ci95"][1]:.2f}]')
        yield {'token_count': int(tokens), **good, 'ci95': ab['ci95'], 'aa_ci95': aa['ci95']}


try:
    measured_rows = list(recorded_rows())
    for chosen in (measured_rows, measured_rows[2:]):
        print(decide(chosen, {'min_gain': 0.05, 'required_level': 'kernel_observed'}))
except NotImplementedError as todo:
    print(todo)

# %% [markdown] slug="together-reading"
# 读这几行：
#
# - $T=1$ 和 $T=32$ 慢：编译后的函数每次调用都有固定的开销，活太少，付不起。
# - $T=256$ 的加速比是 1.36，A/A 很安静，可信。
# - $T=512$ 写着 2.89 倍，区间 [2.80, 3.24] 也漂亮。可是 A/A 的区间是 [0.24, 0.46]：eager 跟**自己**比都差两三倍。这时机器的状态在两种速度之间跳。噪声带因此很宽，判定是 `tie`。不看 A/A，你就会把这 2.89 写进报告。
# - 四个形状一起：慢的比快的多，`no_profit`。只给 $T\ge256$ 用（分桶）：接受 256。
#
# （没有做完三个 TODO 时，上面只打印提醒。）

# %% [markdown] slug="stop-here"
# ## 🛑 STOP HERE
#
# 先自己做完三个 TODO，跑过上面全部的测试，再往下看。卡住了，先看提示，再重读报错里写的那一步。
#
# 真的做不下去时，参考答案和讲解在这里：[教师版 notebook]({{blob:solutions/07_execution_evidence/07_execution_evidence.ipynb}})。看完请关掉它，凭自己的理解再写一遍。

# %% [markdown] slug="step-5"
# ## 第五步 可选实验：在你的机器上取证（Optional experiment）
#
# 这一步不计分，批改时也不运行。所有代码都已写好，你只需要改 5.1 的设置。
#
# | 想知道什么 | 固定什么 | 观察什么 |
# |---|---|---|
# | profile 会被什么污染？ | 同一条链，同一个形状 | 四种情况下，编译、主机、kernel 各多少次 |
# | 名字能证明模式吗？ | 三种写法，同样的输入 | 三个 kernel 名 |
# | 噪声会不会被当成收益？ | 同一个 eager 函数跟自己比，许多遍 | “大于 1 就算”收下几次，按区间判收下几次 |
# | 编译划算吗？ | 权重、输入、线程数 | 每个 $T$ 的加速比、区间、证据 |

# %% [markdown] slug="step-5-1"
# ### 5.1 设置（Settings）
#
# `'dry_run'` 什么也不测；`'real_cpu'` 在 CPU 上真测，float32、单线程，约半分钟，需要 C++ 编译器；`'real_gpu'` 用 CUDA（编写本章的机器没有 GPU，这一条没有运行过）。

# %% 实验设置 slug="exp-settings" tags=["settings"]
RUN_MODE = "dry_run"  # 'dry_run' | 'real_cpu' | 'real_gpu'
RUN_LABEL = "default"
PROFILE_ID = "INF-CUDA-MECHANISM"
GPU_RESULT_PATH = f"benchmarks/results/inf_execution_evidence_{RUN_LABEL}.json"

GPU_DTYPE = "float16"  # real_cpu 一律用 float32
GPU_TOKEN_COUNTS = [1, 32, 256]
GPU_HIDDEN_SIZE = 1024
GPU_WARMUP = 10
GPU_REPEATS = 30  # 每轮的对数
GPU_ROUNDS = 4
GPU_AA_TRIALS = 12  # A/A 试验的遍数；每一遍三个形状
GPU_ATOL = GPU_RTOL = 2e-2

# %% [markdown] slug="step-5-2"
# ### 5.2 运行并保存（Run and save）
#
# 前面十几格是各章共用的工具，方法与第 4 章相同：配对、先后随机、A/A 对照、预热放在最后一次编译之后、剖析的就是被计时的那个函数。后面几格是本章自己的。

# %% 共用：导入 slug="exp-imports" include="assets/cells/exp_imports.py" tags=["experiment"]

# %% 共用：统计 slug="exp-statistics" include="assets/cells/exp_statistics.py" tags=["experiment"]

# %% 共用：区间与判定 slug="exp-verdict" include="assets/cells/exp_verdict.py" tags=["experiment"]

# %% 共用：同步与线程 slug="exp-timing" include="assets/cells/exp_timing.py" tags=["experiment"]

# %% 共用：成对计时 slug="exp-pairs" include="assets/cells/exp_pairs.py" tags=["experiment"]

# %% 共用：配对测量 slug="exp-measure" include="assets/cells/exp_measure.py" tags=["experiment"]

# %% 共用：编译 slug="exp-compile" include="assets/cells/exp_compile.py" tags=["experiment"]

# %% 共用：kernel 证据 slug="exp-evidence" include="assets/cells/exp_evidence.py" tags=["experiment"]

# %% 共用：数值误差 slug="exp-numerics" include="assets/cells/exp_numerics.py" tags=["experiment"]

# %% 共用：第一次调用 slug="exp-shape" include="assets/cells/exp_shape.py" tags=["experiment"]

# %% 共用：一行 slug="exp-row" include="assets/cells/exp_row.py" tags=["experiment"]

# %% 共用：决策 slug="exp-decide" include="assets/cells/exp_decide.py" tags=["experiment"]

# %% 共用：汇总 slug="exp-summary" include="assets/cells/exp_summary.py" tags=["experiment"]

# %% 共用：硬件 slug="exp-hardware" include="assets/cells/exp_hardware.py" tags=["experiment"]

# %% 共用：结果 slug="exp-report" include="assets/cells/exp_report.py" tags=["experiment"]

# %% 共用：运行模式 slug="exp-mode" include="assets/cells/exp_mode.py" tags=["experiment"]

# %% 共用：安全地写文件 slug="exp-file" include="assets/cells/exp_file.py" tags=["experiment"]

# %% 共用：逐个形状 slug="exp-matrix" include="assets/cells/exp_matrix.py" tags=["experiment"]

# %% 被测的链，和三种写法 slug="exp-chain" tags=["experiment"]
def rms_norm(x, weight, eps=1e-6):
    """x: (T, H)，weight: (H,) → (T, H)。"""
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def chain(x, residual, weight, up):
    """residual + RMSNorm + SiLU + 乘，没有矩阵乘 → (T, H)。"""
    hidden = x + residual
    return hidden + torch.nn.functional.silu(rms_norm(hidden, weight)) * up


WRITINGS = {
    "norm(x)": lambda x, y, weight: rms_norm(x, weight),
    "norm(x + y)": lambda x, y, weight: rms_norm(x + y, weight),
    "h = x + y; (h, norm(h))": lambda x, y, weight: ((x + y), rms_norm(x + y, weight)),
}


def chain_inputs(tokens, plan):
    """→ (x, residual, weight, up)；输入的尺度不是 1，权重取自 U(0.5, 1.5)，漏乘就会露馅。"""
    rng, width = torch.Generator().manual_seed(plan["seed"]), plan["hidden_size"]
    place = {"device": plan["device"], "dtype": getattr(torch, plan["dtype"])}
    x, residual, up = (2.5 * torch.randn(tokens, width, generator=rng) for _ in range(3))
    weight = torch.rand(width, generator=rng) + 0.5
    return tuple(tensor.to(**place) for tensor in (x, residual, weight, up))

# %% 一份 profile，连同分类 slug="exp-profile" tags=["experiment"]
def profile_rows(call, device, calls):
    """剖析 call() 若干次 → 第二步那种格式的行。"""
    kinds = [torch.profiler.ProfilerActivity.CPU] + ([torch.profiler.ProfilerActivity.CUDA] if device == "cuda" else [])
    with torch.inference_mode(), one_cpu_thread(), torch.profiler.profile(activities=kinds) as prof:
        for _ in range(calls):
            call()
        synchronize(device)
    rows = []
    for item in sorted(prof.key_averages(), key=lambda item: -item.self_cpu_time_total):
        side = str(item.device_type).rsplit(".", 1)[-1].lower()
        note = bool(getattr(item, "is_user_annotation", False))
        row = {"name": item.key, "device": side, "annotation": note, "count": item.count}
        rows.append(row | {"self_us": round(item.self_cpu_time_total)})
    return rows


def profile_summary(rows, device):
    """行 → 三种事件各几次、看见的融合 kernel、级别，和自身时间最多的 8 个名字。"""
    compiling, calls, fused = compile_event_names(rows), {"compile": 0, "host": 0, "kernel": 0}, {}
    for row in rows:
        own = row["device"] == device and not row["annotation"] and not row["name"].startswith("Mem")
        kind = "kernel" if own and (device == "cuda" or "cpp_fused" in row["name"]) else "host"
        kind = "compile" if row["name"] in compiling else kind
        calls[kind] += row["count"]
        if kind == "kernel" and FUSED_NAME.search(row["name"]):
            fused[row["name"]] = fused.get(row["name"], 0) + row["count"]
    captured = any(row["name"].startswith(GRAPH_MARKERS) for row in rows)
    level = "kernel_observed" if fused else "capture_only" if captured else "none"
    return {"calls": calls, "kernels": fused, "level": level, "top": [row["name"] for row in rows[:8]]}

# %% 四种情况 slug="exp-situations" tags=["experiment"]
def show_kernels(on):
    """CPU 上要打开这个开关，生成的 kernel 才会出现在 profiler 里。"""
    import torch._inductor.config as inductor_config

    if hasattr(inductor_config.cpp, "enable_kernel_profile"):
        inductor_config.cpp.enable_kernel_profile = on


def warmed(call):
    """预热三次 → 原样返回，方便接着剖析。"""
    with torch.inference_mode(), one_cpu_thread():
        for _ in range(3):
            call()
    return call


def study_profiles(plan, tokens=64):
    """→ {情况: profile_summary}：eager、第一次调用、预热后、预热后但没有 kernel 事件。"""
    device, args = plan["device"], chain_inputs(tokens, plan)
    found = {"eager": profile_rows(warmed(lambda: chain(*args)), device, 5)}
    compiled, _ = compile_fresh(chain)
    found["first_call"] = profile_rows(lambda: compiled(*args), device, 1)
    found["warmed"] = profile_rows(warmed(lambda: compiled(*args)), device, 5)
    hidden, _ = compile_fresh(chain)
    show_kernels(False)
    found["warmed_no_kernel_events"] = profile_rows(warmed(lambda: hidden(*args)), device, 5)
    show_kernels(True)
    return {name: profile_summary(rows, device) for name, rows in found.items()}

# %% 三种写法 slug="exp-names" tags=["experiment"]
def study_names(plan):
    """→ {写法: 看见的 kernel 名，去掉图的编号}。"""
    x, y, weight, _ = chain_inputs(64, plan)
    names = {}
    for writing, fn in WRITINGS.items():
        compiled, _ = compile_fresh(fn)
        kernels = profile_kernels(warmed(lambda fn=compiled: fn(x, y, weight)), plan["device"])
        names[writing] = sorted(re.sub(r"^graph_\d+_", "", name) for name in kernels)
    return names

# %% A/A 试验 slug="exp-aa" tags=["experiment"]
def chain_call(tokens, plan):
    """→ 无参函数：用同样的输入算一次 chain。"""
    args = chain_inputs(tokens, plan)
    return lambda: chain(*args)


def study_aa(plan, trials):
    """eager 跟自己比 → 每遍、每个形状一项：中位数比、区间、噪声带、按区间的判定。"""
    results = []
    for trial in range(trials):
        for tokens in plan["token_counts"][:3]:
            call = chain_call(tokens, plan)
            pair = measure_pair(call, call, plan["device"], 3, 20, 2, seed=trial)
            item = {"trial": trial, "token_count": tokens, "ratio": pair["speedup"], "ci95": pair["speedup_ci95"]}
            results.append(item | {"noise_band": pair["noise_band"], "verdict": pair["verdict"]})
    return results


def accepted_trials(results, good):
    """有几遍“至少一个形状被收下”；good(item) 是收下的规则。"""
    return len({item["trial"] for item in results if good(item)})

# %% 一次完整的测量 slug="exp-whole" tags=["experiment"]
def make_plan(device):
    """5.1 的设置 → 一次实验的全部参数。CPU 上改用 float32 和更严的容差。"""
    plan = {"workload": "MemoryBoundChain", "semantic_id": "INF-EXECUTION-EVIDENCE", "profile_id": PROFILE_ID}
    plan |= {"run_label": RUN_LABEL, "device": device, "dtype": "float32" if device == "cpu" else GPU_DTYPE}
    plan |= {"token_counts": GPU_TOKEN_COUNTS, "hidden_size": GPU_HIDDEN_SIZE, "seed": 0}
    plan |= {"warmup": GPU_WARMUP, "repeats": GPU_REPEATS, "rounds": GPU_ROUNDS}
    return plan | dict.fromkeys(("atol", "rtol"), 1e-4 if device == "cpu" else GPU_ATOL)


def run_evidence(path, plan):
    """测量全部内容 → 保存的结果。没有编译器时，行都记成失败，evidence_study 是 null。"""
    check_label(path, plan["run_label"])
    rows, failures = run_matrix(lambda tokens: (chain, chain_inputs(tokens, plan)), plan)
    report = build_report(rows, failures, plan) | {"evidence_study": None}
    if rows:
        study = {"name": "evidence-study/1", "profiles": study_profiles(plan), "kernel_names": study_names(plan)}
        report["evidence_study"] = study | {"aa_trials": study_aa(plan, GPU_AA_TRIALS)}
    save_report(path, report)

# %% 运行（默认 dry_run） slug="exp-run" tags=["experiment", "nbval-ignore-output"]
experiment_on = experiment_device(RUN_MODE, PROFILE_ID)
if experiment_on is None:
    print("dry_run：什么也没有测。想真测，把 5.1 的 RUN_MODE 改成 'real_cpu' 或 'real_gpu'，再从 5.1 往下运行。")
else:
    run_evidence(result_path(GPU_RESULT_PATH, experiment_on), make_plan(experiment_on))

# %% [markdown] slug="step-5-3"
# ### 5.3 读结果（Read）
#
# 只读文件，不测量。做完 TODO 3 后，最后一行是**你的** `decide` 对这份文件的结论。

# %% 共用：读结果 slug="exp-reader" include="assets/cells/exp_reader.py" tags=["reader"]

# %% v2 结果变成行 slug="exp-rows" tags=["reader"]
def rows_of(report):
    """v2 结果 → decide 要的行。"""
    rows = []
    for item in report["candidate_matrix"]:
        row = {"token_count": item["token_count"], "failure": None, "output_close": item["output_close"]}
        row |= {"graph_breaks": item["graph_break_count"], "recompiles": item["compile"]["recompiles_during_measurement"]}
        row |= {"level": item["evidence"]["level"], "ci95": item["speedup_ci95"], "aa_ci95": item["aa_ratio_ci95"]}
        rows.append(row)
    return rows + [{"token_count": bad["token_count"], "failure": bad["message"]} for bad in report["failure"] or []]

# %% 读本章的结果 slug="exp-read-study" tags=["reader", "nbval-ignore-output"]
def print_study(study):
    """profile 的三种次数、三种写法的名字、A/A 试验。"""
    for name, profile in study["profiles"].items():
        print(f"{name}: {profile['calls']}  level={profile['level']}")
    for writing, names in study["kernel_names"].items():
        print(f"{writing}: {', '.join(names)}")
    trials = 1 + max(item["trial"] for item in study["aa_trials"])
    naive = accepted_trials(study["aa_trials"], lambda item: item["ratio"] > 1)
    strict = accepted_trials(study["aa_trials"], lambda item: item["verdict"] == "faster")
    print(f"A/A, {trials} trials: 'some ratio > 1' accepts {naive}, the interval accepts {strict}")


result_file = newest_result(GPU_RESULT_PATH)
print_report(result_file)
report = load_report(result_file)
if report and report["evidence_study"]:
    print_study(report["evidence_study"])
    try:
        print("your decide:", decide(rows_of(report), {"min_gain": 0.05, "required_level": "kernel_observed"}))
    except NotImplementedError as todo:
        print(todo)

# %% [markdown] slug="step-5-4"
# ### 5.4 画图（Plot）
#
# 图只从保存好的 JSON 画。没有你自己的结果时，画随本章附带的样例，标题里写着它是在什么机器上录的。

# %% 共用：加速比 slug="exp-plot" include="assets/cells/exp_plot.py" tags=["plot"]

# %% 画证据 slug="exp-plot-evidence" tags=["plot"]
def draw_profiles(axis, profiles):
    """左图：四份 profile 里三种事件的次数（对数轴；没有的不画）。"""
    hatches = {"compile": ("#b34700", "//"), "host": ("0.75", ""), "kernel": ("#003f7f", "")}
    for offset, (kind, (color, hatch)) in enumerate(hatches.items()):
        places = [index + 0.27 * (offset - 1) for index in range(len(profiles))]
        values = [profile["calls"][kind] for profile in profiles.values()]
        axis.bar(places, values, 0.25, color=color, hatch=hatch, edgecolor="black", linewidth=0.5, label=kind)
    axis.set_xticks(range(len(profiles)), [name.replace("warmed_no", "warmed,\nno").replace("_", " ") for name in profiles])
    axis.set(yscale="log", ylim=(0.5, None), ylabel="event count", title="What each profile holds")
    axis.legend(frameon=False)


def draw_aa(axis, trials):
    """中图：A/A 试验。空心：中位数比大于 1，按常见规则会被收下；横线：95% 区间。"""
    for number, item in enumerate(trials):
        axis.plot(item["ci95"], [number, number], "-", color="0.6", linewidth=1.5)
    for naive, fill, label in ((False, "black", "ratio <= 1"), (True, "white", "ratio > 1: naive rule accepts")):
        chosen = [(item["ratio"], number) for number, item in enumerate(trials) if (item["ratio"] > 1) is naive]
        if chosen:
            axis.plot(*zip(*chosen), "o", color="black", markerfacecolor=fill, markersize=5, label=label)
    axis.axvline(1, color="0.4", linestyle="--")
    axis.set(xlabel="eager / eager", ylabel="trial x shape", title="A/A: the same function twice")
    axis.set_ylim(-1, 1.25 * len(trials))  # 上面留出图例的位置
    axis.legend(frameon=False, fontsize=8, loc="upper left")


def plot_evidence(report, note=""):
    """一份结果 → figure（三幅）。"""
    study, hardware, rows = report["evidence_study"], report["hardware"], report["candidate_matrix"]
    with plt.style.context("default"):
        fig, axes = plt.subplots(1, 3, figsize=(15, 4.4))
        if study:
            draw_profiles(axes[0], study["profiles"])
            draw_aa(axes[1], study["aa_trials"])
        if rows:
            draw_speedup(axes[2], rows, report["summary"]["accepted_token_counts"])
            tokens = [row["token_count"] for row in rows]
            axes[2].set_xticks(tokens, [str(token) for token in tokens])
            axes[2].minorticks_off()
        fig.suptitle(f"{note}{hardware['device']}, torch {hardware['torch_version']}")
        fig.tight_layout()
    return fig

# %% 录好的样例 slug="exp-sample" sample="assets/samples/07_execution_evidence_cpu.json" tags=["plot"]
# 真实的一次 CPU 测量。

# %% 图 slug="exp-figure" tags=["plot"]
own_report = load_report(newest_result(GPU_RESULT_PATH))
if own_report is None:
    print("没有你自己的结果，下面画的是录好的样例，不是你的机器。")
plot_evidence(own_report or RECORDED_SAMPLE, "" if own_report else "Recorded sample, not your machine: ")
plt.show()

# %% [markdown] slug="step-5-5"
# *图 4　左：同一条链的四份 profile，三种事件各多少次（对数轴）。中：A/A 试验，空心点是“中位数比大于 1”的，横线是区间。右：各个 $T$ 的加速比；灰带是噪声带，金色星号是被接受的形状。*
#
# ### 5.5 解释与决定（Interpret and decide）
#
# | 你看到的 | 可以说 | 下一步 |
# |---|---|---|
# | `first_call` 里编译事件一大把 | 剖析得太早 | 预热之后再剖析 |
# | `warmed_no_kernel_events` 是 `capture_only` | 进了编译区；kernel 跑没跑，这份 profile 说不出来 | 打开 `cpp.enable_kernel_profile` 再看 |
# | 三种写法，同一个 kernel 名 | 名字证明不了模式 | 看生成的代码，或比较访存量 |
# | A/A：“大于 1”收下好几遍 | 那条规则收下的是噪声 | 只信越过噪声带的区间 |
# | `faster`，并且 `kernel_observed` | 这台机器、这个形状上值得 | 只给这些形状用，放进真实模型再测 |
# | `tie` 或 `slower` | 不值得换 | 保留 eager，记下形状和原因 |
#
# **区间回答什么，不回答什么。** 样例里 $T=256$ 的加速比是 3.65，4.4 的记录里同一个形状是 1.36：同样的代码，同一台机器，隔了不到半小时，机器忙闲不同。区间说的是“这一次测量有多稳”，不是“下一次还会一样”。方向一致（都快），大小不一致；所以写报告时，大小要在真实负载下再测。
#
# `accept_for_selected_shapes` 只对列出的形状有效。有失败、算错、断图、重编译，或者没有证据、没有收益，都是 `tune_or_fallback`。
#
# **什么是测出来的，什么是读来的。** 本章的 CPU 数据都在一台 2 核 CPU（AMD EPYC，torch 2.13）上录得。GPU 的规则（设备事件、`triton_` 开头的名字）来自 PyTorch 的文档<sup>[4]</sup>；4.1 测试里的 GPU 事件是手写的；`real_gpu` 没有运行过。

# %% [markdown] slug="questions"
# ## 思考题（Questions to think on）
#
# 1. 规则 3 把 CPU 的 kernel 限定为名字含 `cpp_fused`。编译后的图里若有一个矩阵乘，交给了 oneDNN，它会被数进 `kernels` 吗？这对 `level` 有没有影响？
# 2. 一次 profile 里既有 `kernel_observed` 的名字，又有几百次编译事件。它的次数可信吗？自身时间可信吗？
# 3. 为什么区间用“中位数之比”，而不用“每对之比的中位数”？各举一种更合适的场合。
# 4. 对数从 60 加到 600，区间会窄多少？A/A 的噪声带会不会也变窄？
# 5. `decide` 里 `slower` 比 `faster` 多就不接受。若只把赢的形状分派给新路径，输的形状又有什么关系？
# 6. 有人建议：A/A 区间若太宽，就重测到它变窄为止。这样做有什么问题？
#
# <details><summary>一点线索</summary>
#
# 1：不会；只要同一张图里还有生成的 kernel，级别不变；若整张图只剩矩阵乘，就只有 `capture_only`。2：次数可信；时间混着编译时的干扰，不可信。3：比值的中位数对每一对的公共干扰更稳；中位数之比与“典型一次调用的耗时”直接对应。4：大约窄到三分之一（$1/\sqrt{10}$）；随机的那部分会变窄，双峰和漂移不会。5：分派本身要花钱，也会出错；输得多说明你对转折点还没有把握。6：挑到合适的结果才停，本身就是一种偏差；应当换一台安静的机器，并把丢掉的测量也写下来。
#
# </details>

# %% [markdown] slug="mistakes"
# ## 常见误区（Common mistakes）
#
# | 误区 | 事实 |
# |---|---|
# | 编译没报错，所以融合了 | 编译发生在第一次调用；融没融合要看 kernel |
# | profile 里有 `aten::mul`，所以没融合 | 可能是追踪时走过的；先看有没有编译事件 |
# | profile 里没有 kernel，所以没跑 | CPU 上可能只是没打开 `enable_kernel_profile` |
# | kernel 叫 `…add…rsqrt…`，所以 add + RMSNorm 融合了 | 名字只列出算子；三种写法同一个名字 |
# | 按名字数 kernel，GPU 上也一样 | 主机那一边有同名的行；要先看设备 |
# | 快了 3%，稳定复现三次 | 三次都在噪声带里，还是噪声 |
# | 取最小值最公平 | 最小值看不见抖动；用户遇到的是分布 |
# | 两边各测 1000 次，样本够多了 | 分两段测，漂移再多样本也消不掉 |
# | 区间不含 1，就有收益 | 还要越过 A/A 的噪声带；录好的 $T=512$ 就是例子 |

# %% [markdown] slug="summary-text"
# ## 收尾：总测试（Final check）
#
# 三组测试一起再跑一遍。全部通过时打印一行 ✅。这一格不计分。

# %% 总测试 slug="summary" tags=["summary"] nbgrader={"grade": false, "grade_id": "summary", "locked": true, "schema_version": 3, "solution": false, "task": false}
def test_execution_evidence():
    test_kernel_evidence()
    test_paired_speedup()
    test_decide()
    print('✅ 三个 TODO 的可见测试全部通过：取证、配对比较、决定都符合规则。')


test_execution_evidence()

# %% [markdown] slug="links"
# ## 小结与链接（Summary and links）
#
# - “编译了”“捕获了”“融合 kernel 跑了”“划算”，四句话，四份证据。
# - 剖析之前先预热；编译事件和主机事件不是 kernel。
# - 配对、先后随机、A/A 对照；看区间，不看一个点。
# - 决定有固定的先后：失败 > 数值错 > 断图或重编译 > 证据 > 收益。
#
# **下一步**：{{chapter:08_capstone|第 8 章 综合项目}}。那里把计划和证据放在一起审计。
#
# **资料来源**
#
# 1. PyTorch，[Profiling to understand torch.compile performance](https://docs.pytorch.org/docs/stable/torch.compiler_profiling_torch_compile.html)：剖析前先预热，等编译完成。
# 2. vLLM，[compilation/monitor](https://docs.vllm.ai/en/latest/api/vllm/compilation/monitor/)：`monitor_profiling_run` 断言剖析期间没有编译。
# 3. Efron，*Bootstrap Methods: Another Look at the Jackknife*，[doi:10.1214/aos/1176344552](https://doi.org/10.1214/aos/1176344552)。
# 4. PyTorch，[TorchInductor GPU Profiling](https://docs.pytorch.org/docs/stable/torch.compiler_inductor_profiling.html)：生成的 kernel 名以 `triton_` 开头，后面是种类和来源算子。
# 5. 事件的名字、`enable_kernel_profile` 的作用、三种写法同名：由本章的记录和 5.2 的实验在 torch 2.13（CPU）上得到。
