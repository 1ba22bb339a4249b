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
# # INF-DISPATCH-CAPSTONE. A Dispatcher You Can Audit | 综合项目：可以审计的分派器
#
# [![在 Colab 打开本章](https://colab.research.google.com/assets/colab-badge.svg)]({{colab}}) [![在 ModelScope 打开本章](https://img.shields.io/badge/Open%20in-ModelScope-624aff)]({{modelscope}})
#
# **难度**：Hard ｜ **环境**：CPU-first + 可选单卡 GPU ｜ **标签**：分派器、计划缓存、审计、回退 ｜ **预计用时**：100 分钟（第一至三步 25，三个 TODO 60，其余 15；第五步的实验另计）｜ 版本 {{version}}
#
# 前面各章的零件都有了：图、匹配、能力门、证据。这一章把它们装成一台真的分派器，后端是 PyTorch 在 CPU 上真有的几条路。装好以后还要查账：计划说走 flash，真的走了吗？
#
# **学完本章，你能够**
#
# 1. 把一张真实的图变成一份执行计划（plan）：哪些节点一组，走哪条路，为什么；
# 2. 写一个带缓存的分派，说清缓存键（cache key）里必须有什么，少了会出什么错；
# 3. 拿运行时的证据审计（audit）计划，每一段得到 `confirmed`、`fell_back` 或 `unproven`；
# 4. 说出九个真实系统在优先级、理由、回退上的取舍。
#
# **先修**：{{chapter:04_execution_dispatch|第 4 章 推理融合与后端分派}}、{{chapter:05_graph_capture|第 5 章 图捕获}}、{{chapter:07_execution_evidence|第 7 章 执行证据}}。用到的函数本章都给出能用的版本；没做完前几章也能做这一章。第一至四步不需要 torch。
#
# **上一章**：{{chapter:07_execution_evidence|第 7 章 执行证据}} ｜ **下一章**：没有了。回到{{chapter:01_preflight|第 1 章}}，换一台机器再走一遍。
#
# **怎样用这个 notebook**：从上到下读，从上到下运行。遇到 TODO，把 `raise NotImplementedError(...)` 那一行换成你的代码，再运行它后面的测试。没做的 TODO 会在测试里报出自己的编号；这不是错误，是提醒。

# %% [markdown] slug="step-1"
# ## 第一步 计划、缓存、审计（Plan, cache, audit）
#
# 一台分派器要回答三个问题，各有各的错法：
#
# | 环节 | 问题 | 典型的错 |
# |---|---|---|
# | 计划（plan） | 这张图、这个输入，每一段走哪条路？ | 漏了节点；次序排错；没有理由 |
# | 分派（dispatch） | 算过的计划能不能直接用？ | 缓存键少了一个字段，拿旧计划给新输入用 |
# | 审计（audit） | 计划里写的路，真的走了吗？ | 把“计划”当成“事实” |
#
# ![一个环：图、后端和输入进入计划，计划按键缓存，执行留下证据，审计把证据和计划逐段对照，结论再回到计划]({{raw:assets/figures/08_loop.png}})
#
# *图 1　计划写下**应该**发生什么，证据写下**发生了**什么，审计把两张纸并排放。*
#
# **为什么要审计？** 一个真实的例子。PyTorch 允许你给 SDPA 的几种实现排优先级：
#
# ```python
# with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION], set_priority=True):
#     out = scaled_dot_product_attention(q, k, v)
# ```
#
# 你写的是“先用 math”。在 CPU（torch 2.13）上，跑的却是 flash，没有异常，也没有警告。CPU 那一边的次序是写死的：flash 在前，math 在后<sup>[1]</sup>；这个参数只对 CUDA 有效。结果是对的，只是**不是你要的那条路**。第五步会让你亲眼看到。
#
# **为什么缓存键会错？** 能力门读了输入的若干字段：dtype、长度、dropout……得出“走 flash”。这个结论只对**这些字段取这些值**时成立。键里少写一个，那个字段变了，缓存仍然命中，旧结论就用到了新输入上。这叫**陈旧命中**（stale hit）。
#
# ![左：键里只有 dtype 和长度，dropout 从 0 变成 0.1 时仍然命中旧计划 flash；右：键里含有检查读过的每一个字段，dropout 变了就重新计划，得到 math]({{raw:assets/figures/08_cache_key.png}})
#
# *图 2　键的规矩：**检查读过的字段，一个也不能少**；没读过的，一个也不必有。*

# %% [markdown] slug="step-2"
# ## 第二步 工具箱（The toolbox）
#
# 前几章的函数，这里给出能用的版本。都是给定代码，不必改；忘了规则，就看每个函数的第一行说明。
#
# **图**：第 5 章录好的一层 Llama 风格 decoder（torch 2.13 导出），以及归并。

# %% 录好的图 sample="assets/samples/05_llama_block.json" nbgrader={"grade": false, "grade_id": "recorded_block", "locked": true, "schema_version": 3, "solution": false, "task": false}
import json

# %% 第 5 章：归并 nbgrader={"grade": false, "grade_id": "graph_tools", "locked": true, "schema_version": 3, "solution": false, "task": false}
ROLES = {'add': 'add', 'mul': 'multiply', 'scaled_dot_product_attention': 'attention'}
LAYOUT_ROLES = ['view', 'reshape', 'transpose', 'permute', '_operator.getitem']


def normalize_graph(nodes):
    """torch.export 的节点 → {'nodes': [{'id', 'role', 'inputs'}, ...], 'outputs': [...]}；布局节点去掉，线接好。"""
    source, kept, outputs = {}, [], []
    for node in nodes:
        inputs = [source.get(name, name) for name in node['inputs']]
        role = node['target']
        if node['op'] in ('placeholder', 'get_attr'):
            role = 'input'
        elif role.startswith('aten.'):
            role = ROLES.get(role.split('.')[1], role.split('.')[1])
        if node['op'] == 'output':
            outputs = inputs
        elif role in LAYOUT_ROLES:
            source[node['name']] = inputs[0]
        else:
            kept.append({'id': node['name'], 'role': role, 'inputs': inputs})
    return {'nodes': kept, 'outputs': outputs}


BLOCK = normalize_graph(RECORDED_SAMPLE['nodes'])

# %% 第 5 章：模式与匹配 nbgrader={"grade": false, "grade_id": "match_tools", "locked": true, "schema_version": 3, "solution": false, "task": false}
from itertools import permutations, product

COMMUTATIVE_ROLES = ['add', 'multiply']
PRIORITY = ['attention', 'swiglu', 'add_rms_norm', 'rope']  # 先试的在前
PATTERNS = [
    {'name': 'attention', 'roles': {'attn': 'attention'}, 'edges': [], 'outputs': ['attn']},
    {'name': 'swiglu', 'roles': {'gate': 'linear', 'act': 'silu', 'up': 'linear', 'out': 'multiply'},
     'edges': [['gate', 'act', 0], ['act', 'out', 0], ['up', 'out', 1]], 'outputs': ['out']},
    {'name': 'add_rms_norm', 'roles': {'sum': 'add', 'norm': 'rms_norm'},
     'edges': [['sum', 'norm', 0]], 'outputs': ['sum', 'norm']},
    {'name': 'rope', 'roles': {'neg': 'neg', 'cat': 'cat', 'a': 'multiply', 'b': 'multiply', 'sum': 'add'},
     'edges': [['neg', 'cat', 0], ['cat', 'b', 0], ['a', 'sum', 0], ['b', 'sum', 1]], 'outputs': ['sum']},
]


def match_dag(graph, pattern):
    """模式在图里的每一处出现：[{键: 节点 id}, ...]。角色相同，边都在；可交换的输入次序不限。"""
    by_id, keys = {node['id']: node for node in graph['nodes']}, list(pattern['roles'])

    def edges_hold(key, mapping):
        wanted = [(slot, mapping[source]) for source, target, slot in pattern['edges'] if target == key]
        node = by_id[mapping[key]]
        free = node['role'] in COMMUTATIVE_ROLES
        orders = permutations(node['inputs']) if free else [tuple(node['inputs'])]
        return any(all(order[slot:slot + 1] == (name,) for slot, name in wanted) for order in orders)

    candidates = [[node['id'] for node in graph['nodes'] if node['role'] == pattern['roles'][key]] for key in keys]
    maps = (dict(zip(keys, chosen)) for chosen in product(*candidates) if len(set(chosen)) == len(keys))
    return [mapping for mapping in maps if all(edges_hold(key, mapping) for key in keys)]


def find_matches(graph):
    """PATTERNS 在图里的全部匹配：[{'pattern', 'map', 'outputs'}, ...]，可能互相重叠，也未必合法。"""
    return [
        {'pattern': pattern['name'], 'map': mapping, 'outputs': pattern['outputs']}
        for pattern in PATTERNS for mapping in match_dag(graph, pattern)
    ]

# %% 第 5 章：选出合法的组 nbgrader={"grade": false, "grade_id": "group_tools", "locked": true, "schema_version": 3, "solution": false, "task": false}
def has_cycle(edges):
    """有向边组成的图里有没有环。"""
    edges = {(start, end) for start, end in edges if start != end}
    while edges:
        ends = {end for _, end in edges}
        left = {edge for edge in edges if edge[0] in ends}
        if left == edges:
            return True
        edges = left
    return False


def select_groups(graph, matches, priority):
    """→ {'groups': [{'pattern', 'nodes'}], 'refused': [{'pattern', 'nodes', 'reasons'}]}：不重叠、不逃逸、不成环。"""
    position = {node['id']: index for index, node in enumerate(graph['nodes'])}
    groups, refused, owner = [], [], {}

    def turn(match):
        listed = priority.index(match['pattern']) if match['pattern'] in priority else len(priority)
        return listed, min(position[name] for name in match['map'].values())

    for match in sorted(matches, key=turn):
        members, reasons = sorted(match['map'].values(), key=position.get), []
        if match['pattern'] not in priority:
            reasons.append('not_in_priority')
        elif any(name in owner for name in members):
            reasons.append('overlap')
        else:
            used = {name for node in graph['nodes'] if node['id'] not in members for name in node['inputs']}
            if ((used | set(graph['outputs'])) & set(members)) - {match['map'][key] for key in match['outputs']}:
                reasons.append('escaping_intermediate')
            trial = {**owner, **dict.fromkeys(members, len(groups))}
            pairs = [(name, node['id']) for node in graph['nodes'] for name in node['inputs']]
            if has_cycle([(trial.get(start, start), trial.get(end, end)) for start, end in pairs]):
                reasons.append('would_create_cycle')
        record = {'pattern': match['pattern'], 'nodes': members}
        if reasons:
            refused.append({**record, 'reasons': reasons})
        else:
            owner.update(dict.fromkeys(members, len(groups)))
            groups.append(record)
    return {'groups': groups, 'refused': refused}

# %% [markdown] slug="step-2-gate"
# **能力门与分派**：第 4 章的五道门，加一道。真实的 kernel 还挑别的条件，例如 CPU 上的 flash 不收 dropout、只收四维的输入。这些写进后端的 `requires`：`{字段: 允许的值}`；不满足时的理由是 `requires_字段`。

# %% 第 4 章：能力门与分派 nbgrader={"grade": false, "grade_id": "gate_tools", "locked": true, "schema_version": 3, "solution": false, "task": false}
def evaluate_backend_capability(candidate, workload, backend):
    """→ {'backend', 'supported', 'reasons'}：五道门，再加 requires 里的每一条；理由要全。"""
    checks = {
        'unsupported_pattern': candidate.get('pattern') in backend.get('patterns', []),
        'unsupported_dtype': workload.get('dtype') in backend.get('dtypes', []),
        'unsupported_device': workload.get('device') in backend.get('devices', []),
        'sequence_too_long': workload.get('seq_len', 0) <= backend.get('max_seq_len', 0),
        'dynamic_shape_not_supported':
            not workload.get('dynamic_shape', False) or backend.get('supports_dynamic_shape') is True,
    }
    for field, allowed in backend.get('requires', {}).items():
        checks[f'requires_{field}'] = workload.get(field) in allowed
    reasons = [reason for reason, passed in checks.items() if not passed]
    return {'backend': str(backend.get('name', 'unknown')), 'supported': not reasons, 'reasons': reasons}


def dispatch_candidate(candidate, workload, backends):
    """→ {'execution_path', 'decision', 'rejected_backends'}：第一个可用的；都不行就回退到 eager。"""
    reports = [evaluate_backend_capability(candidate, workload, backend) for backend in backends]
    rejected = {report['backend']: report['reasons'] for report in reports if not report['supported']}
    chosen = next((report['backend'] for report in reports if report['supported']), None)
    decision = 'fallback' if chosen is None else 'optimized'
    return {'execution_path': chosen or 'eager', 'decision': decision, 'rejected_backends': rejected}

# %% [markdown] slug="step-2-backends"
# **后端**：CPU 上真有的四条路，加上永远可用的 `eager`。`requires` 里的条件是第 3 章第五步在 torch 2.13（CPU）上逐条试出来的。

# %% CPU 上的后端 nbgrader={"grade": false, "grade_id": "cpu_backends", "locked": true, "schema_version": 3, "solution": false, "task": false}
FUSED_PATTERNS, ANY_LENGTH = ['swiglu', 'add_rms_norm', 'rope'], 10**9
CPU_BACKENDS = [
    {'name': 'sdpa_flash', 'patterns': ['attention'], 'dtypes': ['float32', 'bfloat16', 'float16'], 'devices': ['cpu'],
     'max_seq_len': ANY_LENGTH, 'supports_dynamic_shape': True,
     'requires': {'dropout_p': [0.0], 'rank': [4], 'last_stride': [1]}},
    {'name': 'sdpa_math', 'patterns': ['attention'], 'dtypes': ['float32', 'float64', 'bfloat16', 'float16'],
     'devices': ['cpu'], 'max_seq_len': ANY_LENGTH, 'supports_dynamic_shape': True},
    {'name': 'inductor_static', 'patterns': FUSED_PATTERNS, 'dtypes': ['float32', 'bfloat16'], 'devices': ['cpu'],
     'max_seq_len': ANY_LENGTH, 'supports_dynamic_shape': False},
    {'name': 'inductor_dynamic', 'patterns': FUSED_PATTERNS, 'dtypes': ['float32', 'bfloat16'], 'devices': ['cpu'],
     'max_seq_len': ANY_LENGTH, 'supports_dynamic_shape': True},
]
CPU_WORKLOAD = {'dtype': 'float32', 'device': 'cpu', 'seq_len': 256, 'dynamic_shape': False,
                'dropout_p': 0.0, 'rank': 4, 'last_stride': 1, 'request_id': 17}

# %% [markdown] slug="step-2-planning"
# **两样新工具。** `run_order` 把若干段排成可以执行的次序；`FieldLog` 是一个会记账的字典：谁读了哪个字段，它都记下。

# %% 排次序，记账 nbgrader={"grade": false, "grade_id": "planning_tools", "locked": true, "schema_version": 3, "solution": false, "task": false}
def run_order(graph, segments):
    """排好次序的 segments（新列表）：每次在输入都齐了的段里，取第一个节点最靠前的。每段是带 'nodes' 的字典。"""
    position = {node['id']: index for index, node in enumerate(graph['nodes'])}
    owner = {name: number for number, segment in enumerate(segments) for name in segment['nodes']}
    needs = {number: set() for number in range(len(segments))}
    for node in graph['nodes']:
        if node['id'] in owner:
            needs[owner[node['id']]] |= {owner[name] for name in node['inputs'] if name in owner} - {owner[node['id']]}
    order = []
    while len(order) < len(segments):
        ready = [number for number in needs if number not in order and needs[number] <= set(order)]
        order.append(min(ready, key=lambda number: min(position[name] for name in segments[number]['nodes'])))
    return [segments[number] for number in order]


class FieldLog(dict):
    """一份 workload 的副本；fields 是被读过的字段（set）。用法：log = FieldLog(workload)，把 log 交给检查。"""

    def __init__(self, workload):
        super().__init__(workload)
        self.fields = set()

    def get(self, field, default=None):
        self.fields.add(field)
        return super().get(field, default)

    def __getitem__(self, field):
        self.fields.add(field)
        return super().__getitem__(field)

# %% 试一试 slug="try-tools"
log = FieldLog(CPU_WORKLOAD)
print(dispatch_candidate({'pattern': 'attention'}, log, CPU_BACKENDS))
print('检查读过的字段：', sorted(log.fields))

# %% [markdown] slug="step-2-reading"
# `request_id` 在输入里，可是没有一个检查读它：它不该进缓存键，否则每个请求都是一次未命中。`dropout_p`、`rank`、`last_stride` 不在第 4 章的五道门里，却被 `requires` 读了：它们必须进键。**字段的名单不该手写，应当从检查里记出来**：以后加一道门，键会自己跟上。

# %% [markdown] slug="step-3"
# ## 第三步 真实系统怎样做（How real systems do it）
#
# 本课程的规则是教学用的约定。九个真实系统各有取舍；每一行都可以去看那个文件。
#
# | 系统 | 优先级 | 留下理由吗 | 办不到时 | 文件 |
# |---|---|---|---|---|
# | 本章 | `PRIORITY` 列表；后端列表的次序 | 每个后端、每一条 | eager；明确的请求抛异常 | 本 notebook |
# | Inductor pattern matcher | 登记的次序；从后往前走节点 | 不留，只计数 | 算子原样留下 | `torch/_inductor/pattern_matcher.py`<sup>[2]</sup> |
# | vLLM 的 RMSNorm + 量化融合 | 特殊的先登记 | `matched_count` | 算子原样留下 | `vllm/compilation/passes/fusion/rms_quant_fusion.py`<sup>[3]</sup> |
# | vLLM 选注意力后端 | 每种设备一张名单 | 每个后端的全部理由 | 明确而无效：`ValueError`；自动：下一个 | `vllm/platforms/cuda.py`、`vllm/v1/attention/backend.py`<sup>[4]</sup> |
# | PyTorch SDPA | CUDA 上可设；CPU 上写死 | 限定后端而都不行时，以警告说明 | math | `aten/src/ATen/native/transformers/sdp_utils_cpp.cpp`、`cuda/sdp_utils.cpp`<sup>[1]</sup> |
# | fx 分区器 | 按拓扑次序合并，查环 | 不留 | 节点留在图里 | `torch/fx/passes/infra/partitioner.py`<sup>[5]</sup> |
# | Torch-TensorRT | `HIGH` 插到最前，其余按登记次序 | debug 日志；`dryrun` 报告 | 交回 PyTorch；太小的块（缺省少于 5 个算子）也交回 | `py/torch_tensorrt/dynamo/conversion/_ConverterRegistry.py`、`partitioning/_global_partitioner.py`<sup>[6]</sup> |
# | ONNX Runtime | provider 的次序，一个节点只归一家 | 分配信息 | CPU provider；可以禁止，禁止后报错 | `onnxruntime/core/framework/graph_partitioner.cc`<sup>[7]</sup> |
# | TVM Relax | **后**登记的优先 | 检查函数只答是否 | 缺省的代码生成 | `python/tvm/relax/backend/pattern_registry.py`、`src/relax/transform/fuse_ops.cc`<sup>[8]</sup> |
# | ExecuTorch | 各分区器打标签；重叠的并在一起 | `why(node, reason=…)` | 可移植算子 | `exir/backend/partitioner.py`、`canonical_partitioners/config_partitioner.py`<sup>[9]</sup> |
#
# 横着看，竖着看，有三点值得记：
#
# - **没有一家用“最长优先”。** 优先级都是明写的；“特殊的在前，一般的在后”是约定，靠登记的次序实现。TVM 恰好反过来：后登记的优先。
# - **留全部理由的是少数。** vLLM 选注意力后端时留：每个后端的 `validate_configuration` 返回一张理由的列表。代价是每个后端都要问一遍。
# - **明确的请求办不到，要说出来。** vLLM 抛 `ValueError` 并附上理由；ONNX Runtime 提供“禁止退回 CPU”的开关。悄悄换一条路，是最难查的错。

# %% [markdown] slug="step-4"
# ## 第四步 练习：计划、分派、审计（The exercise）
#
# | 函数 | 机制 | 约束 | 测试里的证据 |
# |---|---|---|---|
# | `build_plan(graph, backends, workload)` | 选组，逐组分派，排次序 | 节点不漏不重；键的字段从检查里记 | 真实的图、互相重叠的匹配、新的 `requires` |
# | `dispatch(plan_cache, plan_key_fields, workload, build)` | 查缓存，未命中才 `build` | 键不多不少；明确的请求办不到就抛 | 一次只变一个字段，数 `build` 的次数 |
# | `audit(plan, evidence)` | 从算子名认出走了哪条路 | 没有证据不等于走了 | 证实、退回、没有证据，各种组合 |

# %% [markdown] slug="todo1-text"
# ### 4.1 TODO 1：做计划（build a plan）
#
# 用时 25 分钟 ｜ 难度 ●●● ｜ 要写的：约 12 行
#
# 返回 `{'segments': [...], 'refused': [...], 'key_fields': [...]}`。一段（segment）是
# `{'nodes': [id, ...], 'pattern': 模式名或 None, 'path': 路, 'decision': 字符串, 'rejected': {后端: [理由, ...]}}`。
#
# **规则**（测试只依据这几条）
#
# 1. **组**：`select_groups(graph, find_matches(graph), PRIORITY)` 给出合法的组。每一组是一段，`pattern` 是它的模式名，`nodes` 照组里的次序。
# 2. **每一组的路**：把 `{'pattern': 模式名}` 交给 `dispatch_candidate`，`path` 是 `execution_path`，`decision` 照抄（`'optimized'` 或 `'fallback'`），`rejected` 是 `rejected_backends`。后端都不行的组仍是一段，`path` 是 `'eager'`。
# 3. **其余的节点**：不在任何组里、角色又不是 `'input'` 的，**每个节点自成一段**：`pattern` 是 `None`，`path` 是 `'eager'`，`decision` 是 `'plain'`，`rejected` 是 `{}`。`'input'` 节点（权重、输入）不进计划。
# 4. **次序**：全部的段一起交给 `run_order(graph, …)`。段不能按“第一个节点在哪里”直接排：一组要等它的**全部**输入。
# 5. **`refused`** 是 `select_groups` 拒绝的匹配，照抄。
# 6. **`key_fields`**：各次 `dispatch_candidate` 读过的 workload 字段，去重，按字母排好的列表。用 `FieldLog` 记，不手写：后端的 `requires` 里出现新字段，它要自己出现。没有组，就没有检查，是 `[]`。没被读过的字段（如 `request_id`）不在里面。
# 7. **只读**：不改 `graph`、`backends`、`workload`；同样的输入给同样的结果。
#
# 一行规格，可以运行：`FieldLog` 记下的，恰好是读过的。

# %% TODO 1 的规格 slug="todo1-spec"
log = FieldLog({'dtype': 'float32', 'request_id': 17})
(log.get('dtype'), log.get('dropout_p'), sorted(log.fields))

# %% [markdown] slug="todo1-hints"
# <details><summary>提示 1（方向）</summary>
#
# 先得到组，再给每一组分派，放进一个列表；然后把剩下的节点一个一个添进去；最后排次序。
#
# </details>
# <details><summary>提示 2（记账）</summary>
#
# 一个 `FieldLog` 就够：所有的组都用它分派，字段会累积在同一本账里。
#
# </details>
# <details><summary>提示 3（剩下的节点）</summary>
#
# 先把所有组里的节点收进一个 `set`。图里的节点，不在这个 `set` 里、角色不是 `'input'` 的，就是剩下的。
#
# </details>

# %% TODO 1 做计划 todo=1 stub="请先完成 TODO 1：给 segments、refused、key_fields 赋值（规则见 4.1）" nbgrader={"grade": false, "grade_id": "todo1", "locked": false, "schema_version": 3, "solution": true, "task": false}
def build_plan(graph, backends, workload):
    """一张归并过的图、一组后端、一份输入 → 执行计划。

    返回 {'segments': [{'nodes', 'pattern', 'path', 'decision', 'rejected'}, ...], 'refused': [...], 'key_fields': [...]}。
    """
    # TODO 1：给 segments、refused、key_fields 赋值
    ### BEGIN SOLUTION
    log = FieldLog(workload)
    selected = select_groups(graph, find_matches(graph), PRIORITY)
    refused, segments, grouped = selected['refused'], [], set()
    for group in selected['groups']:
        choice = dispatch_candidate({'pattern': group['pattern']}, log, backends)
        grouped |= set(group['nodes'])
        segments.append({
            'nodes': group['nodes'], 'pattern': group['pattern'], 'path': choice['execution_path'],
            'decision': choice['decision'], 'rejected': choice['rejected_backends'],
        })
    for node in graph['nodes']:
        if node['role'] != 'input' and node['id'] not in grouped:
            plain = {'nodes': [node['id']], 'pattern': None, 'path': 'eager', 'decision': 'plain', 'rejected': {}}
            segments.append(plain)
    segments = run_order(graph, segments)
    key_fields = sorted(log.fields)
    ### END SOLUTION
    return {'segments': segments, 'refused': refused, 'key_fields': key_fields}

# %% [markdown] slug="todo1-tests-text"
# **TODO 1 的测试。** 图写成文字：`'y = silu(x)'` 是一个节点，单独的 `'x'` 是输入，`'return y'` 是输出。报错时看四行：应得、实得、可能的原因、请重读哪里。

# %% 计划的样子：三个键，五个字段 todo=1 step="4.1 开头" nbgrader={"grade": true, "grade_id": "todo1_record", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
def difference(got, want, where='返回值'):
    """第一处不同，用话说出来；完全一样时是空串。连类型一起比：True 不是 1，元组不是列表。"""
    if not isinstance(got, type(want)) or isinstance(got, bool) != isinstance(want, bool):
        return f'{where} 的类型应是 {type(want).__name__}，实得 {type(got).__name__}'
    if isinstance(want, dict) and set(got) != set(want):
        return f'{where} 的键应是 {list(want)}，实得 {list(got)}'
    if isinstance(want, (list, tuple)) and len(got) != len(want):
        return f'{where} 应有 {len(want)} 项，实得 {len(got)} 项'
    if isinstance(want, (dict, list, tuple)):
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


def dag(*lines):
    """文字 → 图：'y = multiply(a, b)' 是节点，'x' 是输入，'return y' 是输出。"""
    nodes, outputs = [], []
    for line in lines:
        name, _, call = line.partition(' = ')
        role, _, rest = call.partition('(')
        inputs = [part.strip() for part in rest.rstrip(')').split(',') if part.strip()]
        if line.startswith('return '):
            outputs = [part.strip() for part in line[7:].split(',')]
        else:
            nodes.append({'id': name, 'role': role or 'input', 'inputs': inputs})
    return {'nodes': nodes, 'outputs': outputs}


def segment(nodes, pattern=None, path='eager', decision='plain', **rejected):
    return {'nodes': nodes.split(), 'pattern': pattern, 'path': path, 'decision': decision, 'rejected': rejected}


def plan(*segments, refused=(), fields=()):
    return {'segments': list(segments), 'refused': list(refused), 'key_fields': list(fields)}


def backend(name, *patterns, **changes):
    good = {'name': name, 'patterns': list(patterns), 'dtypes': ['float32'], 'devices': ['cpu'], 'max_seq_len': 4096,
            'supports_dynamic_shape': True}
    return dict(good, **changes)


INPUT = {'dtype': 'float32', 'device': 'cpu', 'seq_len': 64, 'dynamic_shape': False}
GATE_FIELDS = ['device', 'dtype', 'dynamic_shape', 'seq_len']


def check_plan(case, lines, backends, want, cause, step, workload=INPUT):
    args = (dag(*lines), [dict(one) for one in backends], dict(workload))
    got = result_of(case, build_plan, args, want, cause, step)
    if isinstance(got, dict) and step != '4.1 规则 6' and {**got, 'key_fields': want['key_fields']} == want:  # 只错了这一项
        cause, step = 'key_fields 是交给 dispatch_candidate 的 FieldLog 记下的字段，不取自 workload 的键；没有组就是 []', '4.1 规则 6'
    problem = difference(got, want)
    assert not problem, told(case, problem, repr(want), repr(got), cause, step)


def check_plan_record():
    lines = ['q', 'k', 'v', 'a = attention(q, k, v)', 'return a']
    want = plan(segment('a', 'attention', 'fast', 'optimized'), fields=GATE_FIELDS)
    cause = '计划有三个键，一段有五个字段；input 节点不成段；key_fields 要由交给 dispatch_candidate 的 FieldLog 记下'
    check_plan('一个注意力节点', lines, [backend('fast', 'attention')], want, cause, '4.1 开头')


check_plan_record()

# %% 每一组的路和理由 todo=1 step="4.1 规则 2" nbgrader={"grade": true, "grade_id": "todo1_paths", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
def check_paths():
    step, lines = '4.1 规则 1 和规则 2', ['q', 'a = attention(q)', 'b = attention(a)', 'return b']
    half, fast, late = backend('half', 'attention', dtypes=['float16']), backend('fast', 'attention'), backend('late', 'rope')
    rejected = {'half': ['unsupported_dtype'], 'late': ['unsupported_pattern']}
    want = plan(*(segment(name, 'attention', 'fast', 'optimized', **rejected) for name in 'ab'), fields=GATE_FIELDS)
    cause = 'path、decision、rejected 都从 dispatch_candidate 的结果照抄；被拒的后端连同理由都要留下，胜者后面的也算'
    check_plan('三个后端，中间的可用', lines, [half, fast, late], want, cause, step)
    want = plan(*(segment(name, 'attention', 'eager', 'fallback', **rejected) for name in 'ab'), fields=GATE_FIELDS)
    cause = "后端都不行，组仍是一段：path 是 'eager'，decision 是 'fallback'，不是 'plain'，理由照留"
    check_plan('没有可用的后端', lines, [half, late], want, cause, step)


check_paths()

# %% 其余的节点：每个自成一段，输入不算 todo=1 step="4.1 规则 3" nbgrader={"grade": true, "grade_id": "todo1_plain", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
def check_plain():
    step = '4.1 规则 3'
    lines = ['x', 'w', 'l = linear(x, w)', 't = tanh(l)', 'a = attention(t)', 'return a']
    want = plan(segment('l'), segment('t'), segment('a', 'attention', 'fast', 'optimized'), fields=GATE_FIELDS)
    cause = '组外的计算节点一个一段，pattern 是 None，decision 是 plain；input 节点不进计划；次序由 run_order 定（规则 4）'
    check_plan('两个普通节点，一个组', lines, [backend('fast', 'attention')], want, cause, step)
    lines = ['x', 't = tanh(x)', 's = silu(t)', 'return s']
    want, cause = plan(segment('t'), segment('s')), '没有组，就没有检查：key_fields 是 []；普通的段一个也不少'
    check_plan('一个组也没有', lines, [backend('fast', 'attention')], want, cause, '4.1 规则 3 和规则 6')


check_plain()

# %% 次序：组要等它的全部输入 todo=1 step="4.1 规则 4" nbgrader={"grade": true, "grade_id": "todo1_order", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
def check_order():
    step = '4.1 规则 4'
    lines = ['x', 'w', 'g = linear(x, w)', 's = silu(g)', 't = tanh(x)', 'u = linear(t, w)', 'm = multiply(s, u)', 'return m']
    want = plan(segment('t'), segment('g s u m', 'swiglu', 'fast', 'optimized'), fields=GATE_FIELDS)
    cause = '组的第一个节点 g 在 t 前面，可是组要等 t；用 run_order 排，不要按第一个节点的位置排'
    check_plan('SwiGLU 要等 tanh', lines, [backend('fast', 'swiglu')], want, cause, step)
    lines = ['x', 'w', 'a = attention(x)', 'h = add(a, x)', 'n = rms_norm(h, w)', 'y = tanh(n)', 'return y, h']
    want = plan(segment('a', 'attention', 'fast', 'optimized'), segment('h n', 'add_rms_norm', 'fast', 'optimized'),
                segment('y'), fields=GATE_FIELDS)
    cause = '全部的段一起交给 run_order；先放组、再放普通节点的次序不能直接用'
    check_plan('两组，一个普通节点', lines, [backend('fast', 'attention', 'add_rms_norm')], want, cause, step)


check_order()

# %% 组要合法：重叠的和逃逸的留在 refused todo=1 step="4.1 规则 1 和规则 5" nbgrader={"grade": true, "grade_id": "todo1_groups", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
def check_groups():
    step = '4.1 规则 1 和规则 5'
    lines = ['x', 'w', 'h = add(x, x)', 'n = rms_norm(h, w)', 'p = rms_norm(h, w)', 'return n, p']
    refused = [{'pattern': 'add_rms_norm', 'nodes': ['h', 'p'], 'reasons': ['overlap']}]
    want = plan(segment('h n', 'add_rms_norm', 'fast', 'optimized'), segment('p'), refused=refused, fields=GATE_FIELDS)
    cause = '匹配会重叠，节点只能归一组：组用 select_groups 选，不能直接用 find_matches 的结果；被拒的照抄进 refused'
    check_plan('两个 norm 争一个 add', lines, [backend('fast', 'add_rms_norm')], want, cause, step)
    lines = ['x', 'w', 'g = linear(x, w)', 's = silu(g)', 'u = linear(x, w)', 'm = multiply(s, u)', 'return m, s']
    refused = [{'pattern': 'swiglu', 'nodes': ['g', 's', 'u', 'm'], 'reasons': ['escaping_intermediate']}]
    want = plan(*(segment(name) for name in 'gsum'), refused=refused)
    cause = '中间结果 s 是图的输出，组不合法：四个节点各自成段，理由在 refused；没有组，key_fields 就是 []（规则 6）'
    check_plan('silu 的结果外面还要用', lines, [backend('fast', 'swiglu')], want, cause, step)


check_groups()

# %% 键的字段：读过的，一个不少，一个不多 todo=1 step="4.1 规则 6" nbgrader={"grade": true, "grade_id": "todo1_fields", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
def check_fields():
    step, lines = '4.1 规则 6', ['q', 'a = attention(q)', 'return a']
    picky = backend('picky', 'attention', requires={'dropout_p': [0.0], 'rank': [4]})
    workload = dict(INPUT, dropout_p=0.0, rank=4, request_id=17)
    fields = ['device', 'dropout_p', 'dtype', 'dynamic_shape', 'rank', 'seq_len']
    want = plan(segment('a', 'attention', 'picky', 'optimized'), fields=fields)
    cause = 'requires 里的字段也被读了，要进键；request_id 没有检查读它，不进；按字母排好'
    check_plan('requires 两个字段', lines, [picky], want, cause, step, workload)
    other = backend('other', 'attention', requires={'last_stride': [1]})
    want = plan(segment('a', 'attention', 'eager', 'fallback', other=['requires_last_stride']),
                fields=['device', 'dtype', 'dynamic_shape', 'last_stride', 'seq_len'])
    cause = '字段名单写死了，或者取自 workload 的键；读了而 workload 里没有的字段（last_stride）也要进键'
    check_plan('换了一个要求', lines, [other], want, cause, step)


check_fields()

# %% TODO 1 的全部可见检查 todo=1 step="4.1 TODO 1" nbgrader={"grade": true, "grade_id": "todo1_all", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
def test_build_plan():
    for one_check in (check_plan_record, check_paths, check_plain, check_order, check_groups, check_fields):
        one_check()


test_build_plan()

# %% 真实的一层 decoder todo=1 step="4.1 TODO 1" nbgrader={"grade": true, "grade_id": "todo1_block", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# 隐藏测试：评分时在录好的一层 decoder 上检查
### BEGIN HIDDEN TESTS
def check_block_plan():
    def summary(dynamic, dropout):
        workload = dict(CPU_WORKLOAD, dynamic_shape=dynamic, dropout_p=dropout)
        made = build_plan(BLOCK, CPU_BACKENDS, workload)
        paths = [one['path'] for one in made['segments'] if one['pattern']]
        names = [name for one in made['segments'] for name in one['nodes']]
        return {'segments': len(made['segments']), 'paths': paths, 'nodes': len(names), 'different': len(set(names)),
                'first': names[0], 'last': names[-1], 'fields': made['key_fields'], 'refused': len(made['refused'])}

    fields = ['device', 'dropout_p', 'dtype', 'dynamic_shape', 'last_stride', 'rank', 'seq_len']
    for dynamic, dropout, fused, attention in (
        (False, 0.0, 'inductor_static', 'sdpa_flash'), (True, 0.0, 'inductor_dynamic', 'sdpa_flash'),
        (False, 0.1, 'inductor_static', 'sdpa_math'),
    ):
        want = {'segments': 14, 'paths': [fused, fused, attention, fused, fused], 'nodes': 26, 'different': 26,
                'first': 'rms_norm', 'last': 'add_3', 'fields': fields, 'refused': 0}
        check(f'dynamic={dynamic}, dropout={dropout}', summary, (dynamic, dropout), want, '与规则 1 至 6 不符', '4.1')


check_block_plan()
### END HIDDEN TESTS

# %% 只读，可重复 todo=1 step="4.1 规则 7" nbgrader={"grade": true, "grade_id": "todo1_pure", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 隐藏测试：评分时检查规则 7
### BEGIN HIDDEN TESTS
def check_pure_plan():
    import copy

    graph = dag('x', 'w', 'a = attention(x)', 'h = add(a, x)', 'n = rms_norm(h, w)', 'return n, h')
    args = (graph, [backend('fast', 'attention', requires={'rank': [4]})], dict(INPUT))
    before, step = copy.deepcopy(args), '4.1 规则 7'
    want = plan(segment('a', 'attention', 'eager', 'fallback', fast=['requires_rank']),
                segment('h n', 'add_rms_norm', 'eager', 'fallback', fast=['unsupported_pattern', 'requires_rank']),
                fields=['device', 'dtype', 'dynamic_shape', 'rank', 'seq_len'])
    for case in ('第一次调用', '第二次调用'):
        check(case, build_plan, args, want, '结果依赖上一次调用', step)
        assert args == before, f'graph、backends 或 workload 被改了。请重读：{step}'


check_pure_plan()
### END HIDDEN TESTS

# %% [markdown] slug="todo1-instructor" todo=1 tags=["instructor-only"]
# #### 讲解：TODO 1（只在教师版）
#
# **为什么这样写。** 计划是三步的拼接：选组（第 5 章）、逐组分派（第 4 章）、排次序。唯一的新东西是 `FieldLog`：把“检查读了什么”变成数据，键就不会跟检查脱节。
#
# **为什么普通节点一个一段。** 合并相邻的普通节点又是一次分组，又要查环；教学上不值得。真实系统会合并，因为每一段都有启动的开销。
#
# | 写法 | 后果 | 哪一格抓住 |
# |---|---|---|
# | `key_fields = sorted(workload)` | 每个请求一次未命中 | `todo1_fields` |
# | 手写四个字段 | `requires` 一加，就有陈旧命中 | `todo1_fields` |
# | 每组一本新账，只留最后一本 | 偶尔少字段 | `todo1_plain` 之外靠 `todo1_block` |
# | 不排次序，或按第一个节点排 | 组在输入之前执行 | `todo1_order` |
# | 直接用 `find_matches` | 节点重复，或把逃逸的值弄丢 | `todo1_groups` |
# | `fallback` 的组拆成普通节点 | 丢了理由 | `todo1_paths` |
# | `input` 节点也成段 | 多出许多空段 | `todo1_plain` |
#
# **评分说明。** 可见 31 分，隐藏 5 分。重写 `select_groups` 之类的，按行为给分。

# %% [markdown] slug="todo2-text"
# ### 4.2 TODO 2：带缓存的分派（dispatch with a cache）
#
# 用时 20 分钟 ｜ 难度 ●●○ ｜ 要写的：算键、查缓存、挑一条路，约 10 行
#
# `build(workload)` 很贵（要问每一个后端，也许还要编译），返回一份**报告**：
# `{'available': [路, ...], 'rejected': {路: [理由, ...]}}`，`available` 按优先级从高到低，`'eager'` 总在里面。`plan_cache` 是一个普通的字典，由你读写。
#
# 返回 `(path, 'hit')` 或 `(path, 'miss')`。
#
# **规则**（测试只依据这几条）
#
# 1. **键**：`plan_key_fields` 里每个字段的名字和它在 workload 里的值，workload 里没有的按 `None`。不在名单里的字段，一律不进键。
# 2. **名字也要进键**：同一个 `plan_cache` 可能给两份字段不同的计划用，`dtype='a'` 与 `device='a'` 不是一回事。名单的**次序**不影响键。
# 3. **值可能是列表**（例如形状 `[1, 4, 64, 32]`，也可能嵌套），列表不能当字典的键；给出的 `frozen` 把它变成元组。
# 4. **命中**：键在缓存里，不调用 `build`，第二项是 `'hit'`。**未命中**：调用 `build(workload)` 一次，把**整份报告**存进缓存，第二项是 `'miss'`。
# 5. **挑路**：看 workload 的 `request` 字段，没写就当 `'auto'`。是 `'auto'`，就取 `available` 的第一个；否则请求的路在 `available` 里就用它，**不在就抛 `RuntimeError`**，消息里有请求的名字，和 `rejected` 里它的每一条理由（没有理由就写 `unknown_path`）。绝不悄悄换一条路。
# 6. **`request` 不进键**（除非名单里有它）：缓存里存的是报告，不是挑好的路；同一份报告可以回答不同的请求。抛 `RuntimeError` 时报告也已经存下，下一次是命中。
# 7. **`build` 自己抛异常**：原样抛出，什么也不存。
# 8. **只读**：不改 `workload`、`plan_key_fields` 和缓存里已有的报告。
#
# 一行规格，可以运行：列表当不了键，`frozen` 之后可以；名字不同，键就不同。

# %% 列表变元组 nbgrader={"grade": false, "grade_id": "frozen", "locked": true, "schema_version": 3, "solution": false, "task": false}
def frozen(value):
    """列表（含嵌套）→ 元组，其余原样。结果可以当字典的键。"""
    return tuple(frozen(item) for item in value) if isinstance(value, (list, tuple)) else value

# %% TODO 2 的规格 slug="todo2-spec"
{('shape', frozen([1, [4, 64]])): 1, ('dtype', 'a'): 2, ('device', 'a'): 3}

# %% [markdown] slug="todo2-hints"
# <details><summary>提示 1（方向）</summary>
#
# 三步：算键；拿到报告（从缓存，或者 `build`）；从报告里挑一条路。挑路的代码，命中和未命中走的是同一份。
#
# </details>
# <details><summary>提示 2（键）</summary>
#
# 一个元组，元素是 `(名字, 冻结的值)`；名单先 `sorted`，次序就不影响了。
#
# </details>
# <details><summary>提示 3（自查）</summary>
#
# 连续两次：第一次 `request='auto'`，第二次同样的字段、`request='math'`。`build` 应只调用一次，两次的路不同。若第二次仍是第一条路，你存的是路，不是报告。
#
# </details>

# %% TODO 2 带缓存的分派 todo=2 stub="请先完成 TODO 2：算键、查缓存、挑路（规则见 4.2）" nbgrader={"grade": false, "grade_id": "todo2", "locked": false, "schema_version": 3, "solution": true, "task": false}
def dispatch(plan_cache, plan_key_fields, workload, build):
    """查缓存或做计划，再挑一条路 → (path, 'hit' 或 'miss')。

    明确的请求（workload['request']）办不到时抛 RuntimeError，并附上理由。
    """
    # TODO 2：给 path 和 status 赋值
    ### BEGIN SOLUTION
    key = tuple((field, frozen(workload.get(field))) for field in sorted(plan_key_fields))
    status = 'hit' if key in plan_cache else 'miss'
    if status == 'miss':
        plan_cache[key] = build(workload)
    report = plan_cache[key]
    request = workload.get('request', 'auto')
    path = report['available'][0] if request == 'auto' else request
    if path not in report['available']:
        reasons = report['rejected'].get(request, ['unknown_path'])
        raise RuntimeError(f"requested path {request!r} is not available: {', '.join(reasons)}")
    ### END SOLUTION
    return path, status

# %% [markdown] slug="todo2-helper-text"
# `build` 是一个函数，函数不能从测试那边传过来。下面的辅助函数在你的进程里造一个 `build`，一步一步调用你的 `dispatch`，把普通的值交回去：每一步的结果，`build` 被调用了几次，缓存里有几条。

# %% 一步一步地分派 nbgrader={"grade": false, "grade_id": "run_dispatch", "locked": true, "schema_version": 3, "solution": false, "task": false}
def run_dispatch(steps, table):
    """steps：[(字段名单, workload), ...]；table：[(条件, 报告), ...]，build 返回第一条条件全满足的报告，没有就抛 ValueError。

    返回 {'results': [...], 'builds': 次数, 'entries': 缓存条数, 'changed': 输入变了没有}；
    一步抛 RuntimeError 或 ValueError 时，它的结果是 (异常名, 消息)。
    """
    import copy

    cache, built, results, changed = {}, [], [], False

    def build(workload):
        built.append(workload)
        for condition, report in table:
            if all(workload.get(field) == value for field, value in condition.items()):
                return copy.deepcopy(report)
        raise ValueError('build failed')

    for fields, workload in steps:
        before = copy.deepcopy((fields, workload, list(cache.values())))
        try:
            results.append(dispatch(cache, fields, workload, build))
        except NotImplementedError:
            raise
        except (RuntimeError, ValueError) as error:
            results.append((type(error).__name__, str(error)))
        changed = changed or (fields, workload) != before[:2] or list(cache.values())[:len(before[2])] != before[2]
    return {'results': results, 'builds': len(built), 'entries': len(cache), 'changed': changed}

# %% [markdown] slug="todo2-tests-text"
# **TODO 2 的测试。**

# %% 第一次未命中，第二次命中 todo=2 step="4.2 规则 4" nbgrader={"grade": true, "grade_id": "todo2_hit", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
FLASH = {'available': ['flash', 'math', 'eager'], 'rejected': {'fp8': ['unsupported_dtype', 'unsupported_device']}}
MATH = {'available': ['math', 'eager'], 'rejected': {'flash': ['requires_dropout_p', 'requires_rank']}}
TABLE = [({'dropout_p': 0.0}, FLASH), ({}, MATH)]
FIELDS = ['dtype', 'dropout_p', 'shape']
WORK = {'dtype': 'float32', 'dropout_p': 0.0, 'shape': [1, 4, 64, 32], 'request_id': 1}


def check_steps(case, steps, results, builds, cause, step, table=TABLE, entries=None):
    """steps：[(名单, workload)]；builds 是 build 应被调用的次数，缓存里应有同样多的条数。"""
    want = {'results': results, 'builds': builds, 'entries': builds if entries is None else entries, 'changed': False}
    check(case, run_dispatch, (steps, table), want, cause, step)


def with_fields(*changes, fields=FIELDS):
    return [(list(fields), dict(WORK, **change)) for change in changes]


def check_hit():
    step = '4.2 规则 4'
    cause = "返回元组 (path, 'miss')；未命中时 build 一次，并把报告存进 plan_cache；列表当不了键，先用 frozen"
    check_steps('一次', with_fields({}), [('flash', 'miss')], 1, cause, step)
    cause = '同样的字段第二次应命中，不再调用 build'
    check_steps('两次', with_fields({}, {}), [('flash', 'miss'), ('flash', 'hit')], 1, cause, step)


check_hit()

# %% 陈旧命中：名单里的字段变了，就不是同一份计划 todo=2 step="4.2 规则 1" nbgrader={"grade": true, "grade_id": "todo2_stale", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
def check_stale():
    step = '4.2 规则 1 与图 2'
    cause = '键里少了 dropout_p：dropout 变了仍然命中旧的 flash，这就是陈旧命中'
    check_steps('dropout 从 0 到 0.1', with_fields({}, {'dropout_p': 0.1}), [('flash', 'miss'), ('math', 'miss')], 2, cause, step)
    cause = '键里少了 dtype：名单里的每一个字段都要在键里'
    check_steps('换 dtype', with_fields({}, {'dtype': 'bfloat16'}), [('flash', 'miss')] * 2, 2, cause, step)
    cause = '键里少了 shape，或者把列表变成了别的东西（长度、总数）'
    shapes = with_fields({'shape': [1, 4, 64, 32]}, {'shape': [1, 4, 32, 64]}, {'shape': [1, 4, 64, 32]})
    check_steps('换形状', shapes, [('flash', 'miss'), ('flash', 'miss'), ('flash', 'hit')], 2, cause, step)
    cause = 'workload 里没有的字段按 None：它与 0.0 不是一个键，也不该抛 KeyError'
    steps = [(FIELDS, {'dtype': 'float32', 'shape': [1]}), (FIELDS, {'dtype': 'float32', 'shape': [1], 'dropout_p': 0.0})]
    check_steps('缺一个字段', steps, [('math', 'miss'), ('flash', 'miss')], 2, cause, step)


check_stale()

# %% 不多：没读过的字段不进键 todo=2 step="4.2 规则 1" nbgrader={"grade": true, "grade_id": "todo2_narrow", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
def check_narrow():
    step, cause = '4.2 规则 1', 'request_id 不在名单里，不该进键：否则每个请求都要重新 build'
    check_steps('request_id 不同', with_fields({}, {'request_id': 2}), [('flash', 'miss'), ('flash', 'hit')], 1, cause, step)
    cause = '名单是空的，所有输入共用一份计划'
    steps = with_fields({}, {'dtype': 'int8'}, fields=[])
    check_steps('空名单', steps, [('flash', 'miss'), ('flash', 'hit')], 1, cause, step)


check_narrow()

# %% 明确的请求：办得到就用它 todo=2 step="4.2 规则 5 和规则 6" nbgrader={"grade": true, "grade_id": "todo2_request", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
def check_request():
    step = '4.2 规则 5 和规则 6'
    cause = '没有看 workload 的 request；它在 available 里就该用它，不管优先级'
    check_steps('请求 math', with_fields({'request': 'math'}), [('math', 'miss')], 1, cause, step)
    cause = '缓存里存了挑好的路；应存整份报告，每次按这一次的 request 挑'
    steps = with_fields({}, {'request': 'math'}, {'request': 'eager'}, {'request': 'auto'})
    want = [('flash', 'miss'), ('math', 'hit'), ('eager', 'hit'), ('flash', 'hit')]
    check_steps('同一份报告，四种请求', steps, want, 1, cause, step)


check_request()

# %% 明确的请求：办不到就抛，带上理由 todo=2 step="4.2 规则 5" nbgrader={"grade": true, "grade_id": "todo2_refuse", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
def check_refusal(case, change, parts, step='4.2 规则 5'):
    cause = '办不到的请求要抛 RuntimeError，不能悄悄换一条路；消息里有请求的名字和它的每一条理由'
    shown = f'RuntimeError，消息里有 {parts}'
    got = result_of(case, run_dispatch, (with_fields(change), TABLE), shown, cause, step)['results'][0]
    good = isinstance(got, (tuple, list)) and len(got) == 2 and got[0] == 'RuntimeError'
    assert good, told(case, '没有抛 RuntimeError', shown, got, cause, step)
    missing = [part for part in parts if part not in got[1]]
    assert not missing, told(case, f'消息里缺 {missing}', shown, got[1], cause, step)


def check_refuse():
    check_refusal('dropout 时请求 flash', {'request': 'flash', 'dropout_p': 0.1}, ['flash', 'requires_dropout_p', 'requires_rank'])
    check_refusal('请求 fp8', {'request': 'fp8'}, ['fp8', 'unsupported_dtype', 'unsupported_device'])
    check_refusal('请求一条不认识的路', {'request': 'tpu'}, ['tpu', 'unknown_path'])


check_refuse()

# %% TODO 2 的全部可见检查 todo=2 step="4.2 TODO 2" nbgrader={"grade": true, "grade_id": "todo2_all", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
def test_dispatch():
    for one_check in (check_hit, check_stale, check_narrow, check_request, check_refuse):
        one_check()


test_dispatch()

# %% 字段的名字和次序 todo=2 step="4.2 规则 2" nbgrader={"grade": true, "grade_id": "todo2_names", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# 隐藏测试：评分时检查规则 2 和规则 3
### BEGIN HIDDEN TESTS
def check_names():
    step, cause = '4.2 规则 2', '键里只有值，没有字段的名字：两份计划的键撞在一起'
    steps = [(['dtype'], dict(WORK, dtype='a')), (['device'], dict(WORK, device='a'))]
    check_steps('同值不同名', steps, [('flash', 'miss'), ('flash', 'miss')], 2, cause, step)
    cause = '名单的次序不影响键：先按名字排好'
    steps = [(['dtype', 'dropout_p'], WORK), (['dropout_p', 'dtype'], WORK)]
    check_steps('名单的两种次序', steps, [('flash', 'miss'), ('flash', 'hit')], 1, cause, step)
    cause, step = '嵌套的列表也要冻结；[[1, 2], 3] 与 [1, [2, 3]] 不同', '4.2 规则 3'
    steps = with_fields({'shape': [[1, 2], 3]}, {'shape': [1, [2, 3]]}, {'shape': [[1, 2], 3]})
    check_steps('嵌套的列表', steps, [('flash', 'miss'), ('flash', 'miss'), ('flash', 'hit')], 2, cause, step)


check_names()
### END HIDDEN TESTS

# %% 抛异常之后的缓存；只读 todo=2 step="4.2 规则 6 至规则 8" nbgrader={"grade": true, "grade_id": "todo2_after", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
# 隐藏测试：评分时检查规则 6、7、8
### BEGIN HIDDEN TESTS
def check_after():
    want = ['RuntimeError', ('flash', 'hit'), ('math', 'hit'), 1, 1]
    cause, step = '报告要先存下，再挑路：办不到的请求不该让下一次重新 build', '4.2 规则 6'
    steps = with_fields({'request': 'tpu'}, {}, {'request': 'math'})
    got = result_of('办不到，然后 auto', run_dispatch, (steps, TABLE), want, cause, step)
    shown = [got['results'][0][0], *got['results'][1:], got['builds'], got['entries']]
    assert shown == want, told('办不到，然后 auto', '结果或 build 的次数不对', want, shown, cause, step)
    cause = 'build 抛的异常要原样抛出，什么也不存；下一次还会再试'
    check_steps('build 失败两次', with_fields({}, {}), [('ValueError', 'build failed')] * 2, 2, cause, '4.2 规则 7', [], 0)
    assert got['changed'] is False, 'workload、名单或缓存里的报告被改了。请重读：4.2 规则 8'


check_after()
### END HIDDEN TESTS

# %% [markdown] slug="todo2-instructor" todo=2 tags=["instructor-only"]
# #### 讲解：TODO 2（只在教师版）
#
# **为什么存报告，不存路。** 路取决于两样东西：检查的结论（由键里的字段决定）和这一次的请求。把后者也塞进缓存，要么键变宽，要么答错。存报告，两件事就分开了。
#
# **为什么名字要进键。** 只存值的元组，在一份计划里不会错；两份计划共用缓存时就会撞。真实的缓存常常是全局的。
#
# | 写法 | 后果 | 哪一格抓住 |
# |---|---|---|
# | `key = workload['dtype']` 之类 | 陈旧命中 | `todo2_stale` |
# | `key = str(workload)` | 每个 `request_id` 一次未命中 | `todo2_narrow` |
# | 存 `path` | 换了请求仍是旧路 | `todo2_request` |
# | 请求办不到时用 `available[0]` | 悄悄换路 | `todo2_refuse` |
# | 先挑路再存 | 抛了异常，下次重新 build | `todo2_after` |
# | `tuple(workload[f] for f in …)` | 名字不在键里；缺字段时 `KeyError` | `todo2_stale`、`todo2_names` |
#
# **评分说明。** 可见 27 分，隐藏 7 分。键的具体形式不限（元组、`repr`、`json.dumps` 都行）。

# %% [markdown] slug="todo3-text"
# ### 4.3 TODO 3：审计（audit）
#
# 用时 15 分钟 ｜ 难度 ●●○ ｜ 要写的：每一段的 `observed` 和 `verdict`
#
# `evidence` 是 `{'signatures': {路: [特征, ...]}, 'segments': [...]}`。`segments` 与 `plan['segments']` 同样的次序，每一项是 `{算子名: 次数}`，或者 `None`（这一段没有证据）。特征（signature）是算子名里的一小段文字：看见它，就说明走了那条路。
#
# 返回一个列表，与 `plan['segments']` 同样的次序，每一项是 `{'nodes': [...], 'planned': 路, 'observed': [路, ...], 'verdict': 字符串}`。
#
# **规则**（测试只依据这几条）
#
# 1. **看见了哪些路**：一条路的任何一个特征，是某个**次数大于 0** 的算子名的**一部分**（子串），就算看见了这条路。`observed` 按 `signatures` 的次序列出；没有证据（`None`）时是 `[]`。
# 2. **没看见任何路**：`'unproven'`。没有证据，不能说走了，也不能说没走。
# 3. **看见了计划的路，没看见别的路**：`'confirmed'`。
# 4. **看见了别的路**：`'fell_back'`，即使计划的路也看见了（一部分调用退回去了）。
# 5. **分不清的路不算“别的”**：特征列表与计划的路**完全相同**的路（如 `inductor_static` 与 `inductor_dynamic`，生成的 kernel 同名），证据区别不了它们，不算“别的路”。它仍列在 `observed` 里。
# 6. **计划的路没有特征**（不在 `signatures` 里）：谁也认不出它。看见了别的路就是 `'fell_back'`，否则 `'unproven'`。
# 7. **长度**：`evidence['segments']` 比计划短，缺的按 `None`；比计划长，说明不是同一份计划，抛 `ValueError`。
# 8. **只读**：不改 `plan` 和 `evidence`。
#
# ![判定的流程：没看见任何路是 unproven；看见别的路是 fell_back；只看见计划的路是 confirmed]({{raw:assets/figures/08_verdicts.png}})
#
# *图 3　三种判定。“没有证据”单独是一种，不能并进另外两种。*
#
# 一行规格，可以运行：特征是子串，次数要大于 0。

# %% TODO 3 的规格 slug="todo3-spec"
[('flash_attention' in name and count > 0) for name, count in [('aten::_scaled_dot_product_flash_attention_for_cpu', 1), ('flash_attention', 0)]]

# %% [markdown] slug="todo3-hints"
# <details><summary>提示 1（方向）</summary>
#
# 对每一段：先求 `observed`，再求“别的路”，最后三选一。
#
# </details>
# <details><summary>提示 2（别的路）</summary>
#
# 在 `observed` 里去掉特征列表与计划的路相同的那些（计划的路自己也就去掉了）。`signatures.get(planned)` 在规则 6 的情形是 `None`，与谁都不相同，正好。
#
# </details>
# <details><summary>提示 3（次序）</summary>
#
# 先问“`observed` 空不空”，再问“有没有别的路”。次序反了也行，但别把“空”算成 `confirmed`。
#
# </details>

# %% TODO 3 审计 todo=3 stub="请先完成 TODO 3：求每一段的 observed 和 verdict（规则见 4.3）" nbgrader={"grade": false, "grade_id": "todo3", "locked": false, "schema_version": 3, "solution": true, "task": false}
def audit(plan, evidence):
    """计划与证据逐段对照 → [{'nodes', 'planned', 'observed', 'verdict'}, ...]，次序同计划。"""
    signatures, operators = evidence['signatures'], list(evidence['segments'])
    results = []
    # TODO 3：检查长度，再逐段填 results
    ### BEGIN SOLUTION
    if len(operators) > len(plan['segments']):
        raise ValueError('证据的段数比计划多：不是同一份计划')
    operators += [None] * (len(plan['segments']) - len(operators))
    for segment, seen in zip(plan['segments'], operators):
        names, planned = [name for name, count in (seen or {}).items() if count > 0], segment['path']
        observed = [path for path, marks in signatures.items() if any(mark in name for mark in marks for name in names)]
        others = [path for path in observed if signatures[path] != signatures.get(planned)]
        verdict = 'unproven' if not observed else 'fell_back' if others else 'confirmed'
        results.append({'nodes': list(segment['nodes']), 'planned': planned, 'observed': observed, 'verdict': verdict})
    ### END SOLUTION
    return results

# %% [markdown] slug="todo3-tests-text"
# **TODO 3 的测试。** 计划和证据都是手写的，与 TODO 1、TODO 2 无关。

# %% 三种判定 todo=3 step="4.3 规则 1 至规则 4" nbgrader={"grade": true, "grade_id": "todo3_verdicts", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
SIGNS = {'flash': ['flash_attention'], 'math': ['attention_math', '_safe_softmax'], 'eager': ['aten::silu', 'aten::linear']}
FLASH_RAN = {'aten::_scaled_dot_product_flash_attention_for_cpu': 3, 'aten::transpose': 6}
MATH_RAN = {'aten::_scaled_dot_product_attention_math': 3, 'aten::matmul': 6, 'aten::_safe_softmax': 3}


def check_audit(case, paths, seen, want, cause, step, signs=SIGNS):
    """paths：计划的路；seen：每段的算子；want：[(observed, verdict), ...]。"""
    segments = [segment(f'n{number}', 'p', path, 'optimized') for number, path in enumerate(paths)]
    results = [
        {'nodes': [f'n{number}'], 'planned': path, 'observed': observed, 'verdict': verdict}
        for number, (path, (observed, verdict)) in enumerate(zip(paths, want))
    ]
    args = (plan(*segments), {'signatures': dict(signs), 'segments': list(seen)})
    check(case, audit, args, results, cause, step)


def check_verdicts():
    step = '4.3 规则 1 至规则 4'
    cause = "每段一项：nodes、planned、observed（路的列表）、verdict"
    check_audit('计划 flash，跑了 flash', ['flash'], [FLASH_RAN], [(['flash'], 'confirmed')], cause, step)
    cause = '看见的不是计划的路：fell_back'
    check_audit('计划 math，跑了 flash', ['math'], [FLASH_RAN], [(['flash'], 'fell_back')], cause, step)
    cause = '没有看见任何路的特征：unproven，不是 fell_back，也不是 confirmed'
    check_audit('计划 flash，只看见 matmul', ['flash'], [{'aten::matmul': 2}], [([], 'unproven')], cause, step)
    cause = '三段各判各的，次序同计划；看见一条路的任何一个特征，就算看见了这条路'
    seen = [MATH_RAN, {'aten::silu': 1}, FLASH_RAN]
    want = [(['math'], 'fell_back'), (['eager'], 'confirmed'), (['flash'], 'confirmed')]
    check_audit('三段', ['flash', 'eager', 'flash'], seen, want, cause, step)


check_verdicts()

# %% 没有证据，不等于走了 todo=3 step="4.3 规则 1 和规则 2" nbgrader={"grade": true, "grade_id": "todo3_unproven", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
def check_unproven():
    step = '4.3 规则 1、2、7'
    cause = '没有证据（None、空字典、次数是 0）就是 unproven'
    seen = [None, {}, {'aten::_scaled_dot_product_flash_attention_for_cpu': 0}]
    check_audit('三种“没有”', ['flash'] * 3, seen, [([], 'unproven')] * 3, cause, step)
    cause = '证据比计划短：缺的段按 None，是 unproven，不能漏掉'
    want = [(['flash'], 'confirmed'), ([], 'unproven')]
    check_audit('只有第一段的证据', ['flash', 'flash'], [FLASH_RAN], want, cause, step)


check_unproven()

# %% 一部分退回也是退回 todo=3 step="4.3 规则 4" nbgrader={"grade": true, "grade_id": "todo3_partial", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
def check_partial():
    step, cause = '4.3 规则 4', '计划的路看见了，别的路也看见了：一部分调用退回了，是 fell_back；observed 按 signatures 的次序'
    both = dict(MATH_RAN, **FLASH_RAN)
    check_audit('flash 和 math 都跑了', ['flash', 'math'], [both, both], [(['flash', 'math'], 'fell_back')] * 2, cause, step)


check_partial()

# %% 特征是子串，任何一个都行 todo=3 step="4.3 规则 1" nbgrader={"grade": true, "grade_id": "todo3_signs", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
def check_signs():
    step = '4.3 规则 1'
    cause = '一条路有几个特征时，看见任何一个就算；不必全都看见'
    check_audit('只有 softmax', ['math'], [{'aten::_safe_softmax': 1}], [(['math'], 'confirmed')], cause, step)
    cause = '特征是算子名的一部分，不必相等，也不必在开头'
    check_audit('名字很长', ['flash'], [{'void pytorch_flash_attention_kernel<float>': 2}], [(['flash'], 'confirmed')], cause, step)
    cause = '方向反了：是特征在算子名里，不是算子名在特征里'
    check_audit('名字很短', ['eager'], [{'silu': 1, 'aten': 2}], [([], 'unproven')], cause, step)


check_signs()

# %% 分不清的路 todo=3 step="4.3 规则 5" nbgrader={"grade": true, "grade_id": "todo3_same", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
def check_same():
    step, signs = '4.3 规则 5', {'static': ['cpp_fused'], 'dynamic': ['cpp_fused'], 'eager': ['aten::silu']}
    cause = 'static 与 dynamic 的特征相同，证据分不清它们：不算别的路，但两条都列在 observed 里'
    want = [(['static', 'dynamic'], 'confirmed')] * 2
    check_audit('生成的 kernel 同名', ['static', 'dynamic'], [{'graph_0_cpp_fused_mul_0': 1}] * 2, want, cause, step, signs)
    seen, want = [{'graph_0_cpp_fused_mul_0': 1, 'aten::silu': 1}], [(['static', 'dynamic', 'eager'], 'fell_back')]
    check_audit('还看见了 eager', ['dynamic'], seen, want, '特征不同的路仍是别的路', step, signs)


check_same()

# %% TODO 3 的全部可见检查 todo=3 step="4.3 TODO 3" nbgrader={"grade": true, "grade_id": "todo3_all", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
def test_audit():
    for one_check in (check_verdicts, check_unproven, check_partial, check_signs, check_same):
        one_check()


test_audit()

# %% 没有特征的路；证据太长 todo=3 step="4.3 规则 6 和规则 7" nbgrader={"grade": true, "grade_id": "todo3_edges", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# 隐藏测试：评分时检查规则 6 和规则 7
### BEGIN HIDDEN TESTS
def check_audit_edges():
    cause, step = '计划的路不在 signatures 里：看见别的路是 fell_back，否则 unproven', '4.3 规则 6'
    want = [(['flash'], 'fell_back'), ([], 'unproven')]
    check_audit('计划 fp8', ['fp8', 'fp8'], [FLASH_RAN, {'aten::mm': 1}], want, cause, step)
    args = (plan(segment('a')), {'signatures': dict(SIGNS), 'segments': [FLASH_RAN, FLASH_RAN]})
    try:
        got = audit(*args)
    except ValueError:
        got = None
    except (AttributeError, LookupError, NameError, TypeError) as error:
        got = f'{type(error).__name__}: {error}'
    cause = '证据比计划长，不是同一份计划'
    assert got is None, told('一段计划，两段证据', '没有抛 ValueError', 'ValueError', got, cause, '4.3 规则 7')
    check_audit('空的计划', [], [], [], '没有段，结果是 []', '4.3 规则 7')


check_audit_edges()
### END HIDDEN TESTS

# %% 只读，可重复 todo=3 step="4.3 规则 8" nbgrader={"grade": true, "grade_id": "todo3_pure", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 隐藏测试：评分时检查规则 8
### BEGIN HIDDEN TESTS
def check_pure_audit():
    import copy

    args = (plan(segment('a b', 'p', 'flash', 'optimized'), segment('c')), {'signatures': dict(SIGNS), 'segments': [dict(MATH_RAN)]})
    before, step = copy.deepcopy(args), '4.3 规则 8'
    want = [{'nodes': ['a', 'b'], 'planned': 'flash', 'observed': ['math'], 'verdict': 'fell_back'},
            {'nodes': ['c'], 'planned': 'eager', 'observed': [], 'verdict': 'unproven'}]
    for case in ('第一次调用', '第二次调用'):
        check(case, audit, args, want, '结果依赖上一次调用', step)
        assert args == before, f'plan 或 evidence 被改了（例如给证据补了 None）。请重读：{step}'


check_pure_audit()
### END HIDDEN TESTS

# %% [markdown] slug="todo3-instructor" todo=3 tags=["instructor-only"]
# #### 讲解：TODO 3（只在教师版）
#
# **为什么三种，不是两种。** `unproven` 与 `fell_back` 的下一步完全不同：前者要换一种取证的办法（打开 `enable_kernel_profile`，或换 profiler），后者要查为什么退回。并成一种，就会有人去修没坏的东西。
#
# | 写法 | 后果 | 哪一格抓住 |
# |---|---|---|
# | `planned in observed` → `confirmed` | 一部分退回看不出来 | `todo3_partial` |
# | 没看见就是 `fell_back` | 没有证据也定罪 | `todo3_verdicts`、`todo3_unproven` |
# | 不看次数 | 次数为 0 的也算看见 | `todo3_unproven` |
# | `all(mark in …)` | 要求全部特征 | `todo3_signs` |
# | 比路的名字，不比特征 | static 与 dynamic 互相冤枉 | `todo3_same` |
# | `zip` 之后不补 | 漏段 | `todo3_unproven` |
#
# **评分说明。** 可见 25 分，隐藏 5 分。

# %% [markdown] slug="together-text"
# ### 4.4 合在一起：真实的图，真实的后端（Putting it together）
#
# 三个函数做完后，运行下面这一格：录好的一层 decoder，四条 CPU 的路。先看计划，再看缓存怎样随字段变化。

# %% 一层 decoder 的计划与缓存 slug="together"
def attention_report(workload):
    """build：注意力可以走哪些路。"""
    reports = [evaluate_backend_capability({'pattern': 'attention'}, workload, backend) for backend in CPU_BACKENDS]
    available = [report['backend'] for report in reports if report['supported']] + ['eager']
    return {'available': available, 'rejected': {report['backend']: report['reasons'] for report in reports}}


try:
    block_plan = build_plan(BLOCK, CPU_BACKENDS, CPU_WORKLOAD)
    for part in block_plan['segments']:
        print(f"{part['pattern'] or '-':13s} {part['path']:16s} {part['decision']:10s} {', '.join(part['nodes'])}")
    print('key fields:', block_plan['key_fields'])
    plan_cache = {}
    for change in ({}, {'request_id': 18}, {'dropout_p': 0.1}, {'request': 'sdpa_math'}, {'request': 'sdpa_flash', 'rank': 3}):
        try:
            print(change, dispatch(plan_cache, block_plan['key_fields'], {**CPU_WORKLOAD, **change}, attention_report))
        except RuntimeError as refused:
            print(change, f'{type(refused).__name__}: {refused}')
except NotImplementedError as todo:
    print(todo)

# %% [markdown] slug="together-reading"
# 读这张表：`request_id` 变了仍然命中；`dropout_p` 变了重新计划，得到 `sdpa_math`；同样的字段、请求 `sdpa_math`，命中同一份报告；三维的输入请求 `sdpa_flash`，办不到，抛异常并说出理由。（没有做完 TODO 1 和 TODO 2 时，只打印提醒。）
#
# 计划只说了“应该”。有没有真的发生，第五步见。

# %% [markdown] slug="stop-here"
# ## 🛑 STOP HERE
#
# 先自己做完三个 TODO，跑过上面全部的测试，再往下看。卡住了，先看提示，再重读报错里写的那一步。
#
# 真的做不下去时，参考答案和讲解在这里：[教师版 notebook]({{blob:solutions/08_capstone/08_capstone.ipynb}})。看完请关掉它，凭自己的理解再写一遍。

# %% [markdown] slug="step-5"
# ## 第五步 可选实验：让计划接受审计（Optional experiment）
#
# 这一步不计分，批改时也不运行。所有代码都已写好，你只需要改 5.1 的设置。
#
# | 想知道什么 | 固定什么 | 观察什么 |
# |---|---|---|
# | 四条路，谁快？ | 同一层 decoder（$d=256$，4 个头）、权重、线程数 | 每个 $T$ 的中位数；对 eager math 的加速比和区间 |
# | 算得对吗？ | float64 的参考 | 各条路的最大误差 |
# | 计划兑现了吗？ | 你的 `build_plan` 做出的计划 | 逐段运行，逐段审计 |
# | 什么时候不兑现？ | 一次只动一处 | 八种情形，每一种都真的跑一遍 |
#
# ### 5.1 设置（Settings）
#
# `'dry_run'` 什么也不测；`'real_cpu'` 在 CPU 上真测，float32、单线程，大约一分钟以内，需要 C++ 编译器；`'real_gpu'` 用 CUDA（编写本章的机器没有 GPU，这一条没有运行过；审计的特征表也是照 CPU 写的）。

# %% 实验设置 slug="exp-settings" tags=["settings"]
RUN_MODE = "dry_run"  # 'dry_run' | 'real_cpu' | 'real_gpu'
RUN_LABEL = "default"
PROFILE_ID = "INF-CUDA-MECHANISM"
GPU_RESULT_PATH = f"benchmarks/results/inf_dispatch_capstone_{RUN_LABEL}.json"

GPU_DTYPE = "float16"  # real_cpu 一律用 float32
GPU_TOKEN_COUNTS = [1, 256]
GPU_HIDDEN_SIZE = 256
GPU_HEADS = 4
GPU_WARMUP = 5
GPU_REPEATS = 25  # 每轮的对数
GPU_ROUNDS = 4
GPU_ATOL = GPU_RTOL = 2e-2

# %% [markdown] slug="step-5-2"
# ### 5.2 运行并保存（Run and save）
#
# 前面十来格是各章共用的工具，方法与第 4 章相同。后面几格是本章自己的：模型、四条路、证据、八种情形。

# %% 共用：导入 slug="exp-imports" include="assets/cells/exp_imports.py" tags=["experiment"]

# %% 共用：统计 slug="exp-statistics" include="assets/cells/exp_statistics.py" tags=["experiment"]

# %% 共用：区间与判定 slug="exp-verdict" include="assets/cells/exp_verdict.py" tags=["experiment"]

# %% 共用：同步与线程 slug="exp-timing" include="assets/cells/exp_timing.py" tags=["experiment"]

# %% 共用：成对计时 slug="exp-pairs" include="assets/cells/exp_pairs.py" tags=["experiment"]

# %% 共用：配对测量 slug="exp-measure" include="assets/cells/exp_measure.py" tags=["experiment"]

# %% 共用：数值误差 slug="exp-numerics" include="assets/cells/exp_numerics.py" tags=["experiment"]

# %% 共用：硬件 slug="exp-hardware" include="assets/cells/exp_hardware.py" tags=["experiment"]

# %% 共用：运行模式 slug="exp-mode" include="assets/cells/exp_mode.py" tags=["experiment"]

# %% 共用：安全地写文件 slug="exp-file" include="assets/cells/exp_file.py" tags=["experiment"]

# %% 一层 decoder slug="exp-model" tags=["experiment"]
from torch.nn.attention import SDPBackend, sdpa_kernel

F = torch.nn.functional


def rotate(x, cos, sin):
    """RoPE；x: (1, heads, T, head_dim)，cos、sin: (T, head_dim)。"""
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-right, left], dim=-1) * sin


class Block(torch.nn.Module):
    """RMSNorm、QKV、RoPE、注意力、残差，再接 RMSNorm、SwiGLU、残差。"""

    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.head_dim = heads, width // heads
        self.norm1, self.norm2 = (torch.nn.Parameter(torch.rand(width) + 0.5) for _ in range(2))
        self.q, self.k, self.v, self.o = (torch.nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = (torch.nn.Linear(width, 2 * width, bias=False) for _ in range(2))
        self.down = torch.nn.Linear(2 * width, width, bias=False)

    def split(self, x):  # (1, T, width) → (1, heads, T, head_dim)
        return x.view(1, x.shape[1], self.heads, self.head_dim).transpose(1, 2)

    def forward(self, x, cos, sin):
        n = F.rms_norm(x, x.shape[-1:], self.norm1, 1e-6)
        q, k, v = rotate(self.split(self.q(n)), cos, sin), rotate(self.split(self.k(n)), cos, sin), self.split(self.v(n))
        attention = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        h = x + self.o(attention.transpose(1, 2).reshape(x.shape))
        n = F.rms_norm(h, h.shape[-1:], self.norm2, 1e-6)
        return h + self.down(F.silu(self.gate(n)) * self.up(n))

# %% 输入 slug="exp-inputs" tags=["experiment"]
def block_inputs(tokens, plan):
    """→ (x, cos, sin)。"""
    width, head_dim = plan["hidden_size"], plan["hidden_size"] // plan["heads"]
    rng, place = torch.Generator().manual_seed(plan["seed"]), {"device": plan["device"], "dtype": getattr(torch, plan["dtype"])}
    angles = torch.arange(tokens)[:, None] / 10000 ** (torch.arange(head_dim // 2) / (head_dim // 2))
    angles = torch.cat([angles, angles], dim=-1)
    x = 2.5 * torch.randn(1, tokens, width, generator=rng)
    return tuple(tensor.to(**place) for tensor in (x, angles.cos(), angles.sin()))

# %% 四条路 slug="exp-paths" tags=["experiment"]
def in_backend(fn, backend):
    """→ 限定 SDPA 只用 backend 时的 fn。"""

    def run(*args):
        with sdpa_kernel(backend):
            return fn(*args)

    return run


def kernel_events(on):
    """CPU 上要打开这个开关，生成的 kernel 才会出现在 profiler 里。"""
    import torch._inductor.config as inductor_config

    if hasattr(inductor_config.cpp, "enable_kernel_profile"):
        inductor_config.cpp.enable_kernel_profile = on


def fresh(fn, dynamic):
    """忘掉以前的编译，重新编译 fn；编译发生在第一次调用时。"""
    torch._dynamo.reset()
    kernel_events(True)
    return torch.compile(fn, dynamic=dynamic)


def four_paths(block):
    """→ {路: 函数}；两个编译的函数各有各的代码对象，互不覆盖。"""
    kernel_events(True)
    torch._dynamo.reset()
    static = torch.compile(lambda *args: block(*args), dynamic=False)
    dynamic = torch.compile(lambda *args: block(*args), dynamic=True)
    eager = {"eager_math": in_backend(block, SDPBackend.MATH), "eager_flash": in_backend(block, SDPBackend.FLASH_ATTENTION)}
    return eager | {"inductor_static": static, "inductor_dynamic": dynamic}

# %% 四条路的测量 slug="exp-matrix" tags=["experiment"]
def measure_paths(tokens, paths, block, plan):
    """T = tokens 时四条路的比较 → candidate_matrix 里的一行；三条路各与 eager_math 配对。"""
    args, row = block_inputs(tokens, plan), {"token_count": tokens, "paths": {}}
    exact, base = float64_output(block, args), lambda: paths["eager_math"](*args)
    timing = [plan[key] for key in ("device", "warmup", "repeats", "rounds", "seed")]
    for name, fn in paths.items():
        call, begin = (lambda fn=fn: fn(*args)), time.perf_counter()
        output = call()
        result = {"first_call_ms": (time.perf_counter() - begin) * 1e3, "max_error": max_abs_error(output, exact)}
        result["output_close"] = torch.allclose(output.double(), exact, atol=plan["atol"], rtol=plan["rtol"])
        if name != "eager_math":
            pair = measure_pair(base, call, *timing)
            result["stats"] = {key: value for key, value in pair["b"].items() if key != "samples_ms"}
            result |= {key: pair[key] for key in ("speedup", "speedup_ci95", "noise_band", "verdict")}
            row["paths"]["eager_math"].setdefault("stats", {key: value for key, value in pair["a"].items() if key != "samples_ms"})
        row["paths"][name] = result
    return row

# %% 证据：算子的名字和次数 slug="exp-operators" tags=["experiment"]
SIGNATURES = {
    "sdpa_flash": ["_scaled_dot_product_flash_attention"],
    "sdpa_math": ["_scaled_dot_product_attention_math"],
    "inductor_static": ["cpp_fused", "triton_"],
    "inductor_dynamic": ["cpp_fused", "triton_"],
    "eager": ["aten::linear", "aten::silu", "aten::rms_norm", "aten::add", "aten::neg", "aten::chunk"],
}


def operators_of(call, device):
    """预热两次，再剖析三次 call() → {算子名: 次数}；只留有 :: 或生成的 kernel，查缓存之类的不算。"""
    kinds = [torch.profiler.ProfilerActivity.CPU] + ([torch.profiler.ProfilerActivity.CUDA] if device == "cuda" else [])
    with torch.inference_mode(), one_cpu_thread():
        call()
        call()
        with torch.profiler.profile(activities=kinds) as prof:
            for _ in range(3):
                call()
            synchronize(device)
    names = {item.key: item.count for item in prof.key_averages()}
    return {name: count for name, count in names.items() if "::" in name or re.search("cpp_fused|triton_", name)}

# %% 一段怎样运行 slug="exp-segment" tags=["experiment"]
def segment_functions(plan, tokens=64):
    """→ {模式或角色: (函数, 参数)}：每一种段，用同样大小的真张量跑一遍。"""
    width, heads = plan["hidden_size"], plan["heads"]
    place = {"device": plan["device"], "dtype": getattr(torch, plan["dtype"])}
    x, y, wide = (torch.randn(tokens, size, **place) for size in (width, width, 2 * width))
    weight, gate, up = torch.rand(width, **place), torch.randn(2 * width, width, **place), torch.randn(2 * width, width, **place)
    q, angle = torch.randn(1, heads, tokens, width // heads, **place), torch.randn(tokens, width // heads, **place)

    def add_rms_norm(a, b, scale):
        h = a + b
        return h, F.rms_norm(h, h.shape[-1:], scale, 1e-6)

    return {
        "attention": (F.scaled_dot_product_attention, (q, q, q)), "rope": (rotate, (q, angle, angle)),
        "swiglu": (lambda a, g, u: F.silu(F.linear(a, g)) * F.linear(a, u), (x, gate, up)),
        "add_rms_norm": (add_rms_norm, (x, y, weight)), "linear": (F.linear, (x, gate)),
        "rms_norm": (lambda a, s: F.rms_norm(a, a.shape[-1:], s, 1e-6), (x, weight)),
        "add": (torch.add, (x, y)), "chunk": (lambda a: a.chunk(2, dim=-1), (wide,)),
    }

# %% 按计划的路运行一段 slug="exp-run-segment" tags=["experiment"]
def run_segment(kind, path, plan):
    """按计划的路运行一段 → {算子名: 次数}。"""
    fn, args = segment_functions(plan)[kind]
    if path in ("sdpa_flash", "sdpa_math"):
        fn = in_backend(fn, SDPBackend.FLASH_ATTENTION if path == "sdpa_flash" else SDPBackend.MATH)
    elif path.startswith("inductor"):
        fn = fresh(fn, dynamic=path == "inductor_dynamic")
    return operators_of(lambda: fn(*args), plan["device"])

# %% 让编译份数到上限 slug="exp-limit" tags=["experiment"]
import logging


def compile_limit(count):
    """同一个函数最多编译几份（这个设置在各版本里名字不同）→ 可以用 with 的对象。"""
    import torch._dynamo.config as dynamo_config

    name = "recompile_limit" if hasattr(dynamo_config, "recompile_limit") else "cache_size_limit"
    return dynamo_config.patch({name: count})


def over_the_limit(fn, args):
    """静态编译只许一份，先用半截输入占掉 → 之后的调用悄悄走 eager（torch 只在日志里说一声，这里关掉）。"""
    logging.getLogger("torch._dynamo.convert_frame").disabled = True
    compiled = fresh(fn, dynamic=False)
    compiled(args[0][: len(args[0]) // 2], *args[1:])
    return lambda: compiled(*args)

# %% 八种情形 slug="exp-cases" tags=["experiment"]
def real_cases(plan):
    """→ [(情形, 计划的路, 算子)]，每一种都真的运行。"""
    sdpa, device, functions = F.scaled_dot_product_attention, plan["device"], segment_functions(plan)
    (q, k, v), (swiglu, swiglu_args) = functions["attention"][1], functions["swiglu"]

    def math_first():
        with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION], set_priority=True):
            return sdpa(q, k, v)

    calls = [
        ("flash, plain input", "sdpa_flash", lambda: sdpa(q, k, v)),
        ("MATH asked first", "sdpa_math", math_first),
        ("only MATH allowed", "sdpa_math", lambda: in_backend(sdpa, SDPBackend.MATH)(q, k, v)),
        ("flash, dropout 0.1", "sdpa_flash", lambda: sdpa(q, k, v, dropout_p=0.1)),
        ("flash, 3-D input", "sdpa_flash", lambda: sdpa(q[0], k[0], v[0])),
    ]
    found = [(name, path, operators_of(call, device)) for name, path, call in calls]
    found.append(("swiglu compiled", "inductor_static", run_segment("swiglu", "inductor_static", plan)))
    silent = fresh(swiglu, dynamic=False)
    kernel_events(False)
    found.append(("compiled, no kernel events", "inductor_static", operators_of(lambda: silent(*swiglu_args), device)))
    with compile_limit(1), torch.inference_mode():
        found.append(("recompile limit reached", "inductor_static", operators_of(over_the_limit(swiglu, swiglu_args), device)))
    return found

# %% 审计 slug="exp-audit" tags=["experiment"]
def audited(segments, operators):
    """你的 audit 的结论；TODO 3 还没做时，verdict 和 observed 是 None。"""
    try:
        results = audit({"segments": segments}, {"signatures": SIGNATURES, "segments": operators})
        return [{"observed": one["observed"], "verdict": one["verdict"]} for one in results]
    except NotImplementedError:
        return [{"observed": None, "verdict": None} for _ in segments]


def audit_cases(plan):
    cases = real_cases(plan)
    segments = [{"nodes": [name], "path": path} for name, path, _ in cases]
    verdicts = audited(segments, [operators for _, _, operators in cases])
    rows = [{"case": name, "planned": path, "operators": operators} for name, path, operators in cases]
    return [row | verdict for row, verdict in zip(rows, verdicts)]


def audit_block(plan):
    """你的计划，逐段运行，逐段审计；TODO 1 还没做时是 None。"""
    try:
        made = build_plan(BLOCK, CPU_BACKENDS, CPU_WORKLOAD)
    except NotImplementedError:
        return None
    roles, rows, ran = {node["id"]: node["role"] for node in BLOCK["nodes"]}, [], {}
    for part in made["segments"]:
        kind, path = part["pattern"] or roles[part["nodes"][0]], part["path"]
        if (kind, path) not in ran:  # 同样的段只跑一次
            ran[kind, path] = run_segment(kind, path, plan)
        rows.append({"kind": kind, "nodes": part["nodes"], "planned": path, "operators": ran[kind, path]})
    verdicts = audited(made["segments"], [row["operators"] for row in rows])
    return [row | verdict for row, verdict in zip(rows, verdicts)]

# %% 一次完整的测量 slug="exp-whole" tags=["experiment"]
def make_plan(device):
    """5.1 的设置 → 一次实验的全部参数。CPU 上改用 float32 和更严的容差。"""
    plan = {"device": device, "dtype": "float32" if device == "cpu" else GPU_DTYPE, "token_counts": GPU_TOKEN_COUNTS}
    plan |= {"hidden_size": GPU_HIDDEN_SIZE, "heads": GPU_HEADS, "warmup": GPU_WARMUP, "repeats": GPU_REPEATS, "seed": 0}
    return plan | {"rounds": GPU_ROUNDS} | dict.fromkeys(("atol", "rtol"), 1e-4 if device == "cpu" else GPU_ATOL)


def run_capstone(path, plan):
    """测量、取证、审计 → 保存的结果。一个形状失败，不影响其他形状。"""
    check_label(path, RUN_LABEL)
    torch.manual_seed(plan["seed"])
    rows, failures, place = [], [], {"device": plan["device"], "dtype": getattr(torch, plan["dtype"])}
    block = Block(plan["hidden_size"], plan["heads"]).to(**place).eval()
    with torch.inference_mode(), one_cpu_thread():
        paths = four_paths(block)
        for tokens in plan["token_counts"]:
            try:
                rows.append(measure_paths(tokens, paths, block, plan))
            except Exception as error:  # 编译器缺失、内存不足……记下来，接着测
                failures.append({"token_count": tokens, "type": type(error).__name__, "message": str(error)[:200] or "no message"})
        cases, block_audit = ([], None) if failures else (audit_cases(plan), audit_block(plan))
    head = {"schema_version": "dispatch-audit/v1", "semantic_id": "INF-DISPATCH-CAPSTONE", "profile_id": PROFILE_ID}
    head |= {"run_label": RUN_LABEL, "workload": {key: value for key, value in plan.items() if key != "device"}}
    head |= {"hardware": describe_hardware(plan["device"]), "measurement": measurement_notes(plan["device"])}
    head |= {"environment": describe_environment(), "candidate_matrix": rows, "cases": cases, "block_audit": block_audit}
    save_report(path, head | {"failure": failures or None, "evidence_level": "local_mechanism_benchmark"})

# %% 运行（默认 dry_run） slug="exp-run" tags=["experiment", "nbval-ignore-output"]
experiment_on = experiment_device(RUN_MODE, PROFILE_ID)
if experiment_on is None:
    print("dry_run：什么也没有测。想真测，把 5.1 的 RUN_MODE 改成 'real_cpu' 或 'real_gpu'，再从 5.1 往下运行。")
else:
    run_capstone(result_path(GPU_RESULT_PATH, experiment_on), make_plan(experiment_on))

# %% [markdown] slug="step-5-3"
# ### 5.3 读结果（Read）

# %% 共用：读结果 slug="exp-reader" include="assets/cells/exp_reader.py" tags=["reader"]

# %% 读本章的结果 slug="exp-read-audit" tags=["reader", "nbval-ignore-output"]
def print_capstone(report):
    """四条路的时间和误差，八种情形，整层的审计。"""
    for key in ("workload", "hardware", "failure"):
        print(f"{key}: {json.dumps(report[key], ensure_ascii=False)}")
    for row in report["candidate_matrix"]:
        for name, path in row["paths"].items():
            ratio = f"speedup {path['speedup']:.2f} {path['verdict']}" if "speedup" in path else "(the base)"
            print(f"T={row['token_count']:<4} {name:16s} {path['stats']['median_ms']:.3f} ms  {ratio:20s}"
                  f" max error {path['max_error']:.1e}  close={path['output_close']}")
    for item in report["cases"]:
        print(f"{item['case']:27s} planned {item['planned']:16s} observed {item['observed']}  {item['verdict']}")
    for item in report["block_audit"] or []:
        print(f"{item['kind']:13s} planned {item['planned']:16s} observed {item['observed']}  {item['verdict']}")


saved_path = newest_result(GPU_RESULT_PATH)
saved_report = load_report(saved_path)
if saved_report is None:
    print(f"还没有结果文件：{saved_path}\n请先在 5.1 把 RUN_MODE 改成 'real_cpu'，再运行 5.2。")
else:
    print_capstone(saved_report)

# %% [markdown] slug="step-5-4"
# ### 5.4 画图（Plot）
#
# 图只从保存好的 JSON 画。没有你自己的结果时，画随本章附带的样例，标题里写着它是在什么机器上录的。

# %% 画图的函数 slug="exp-plot" tags=["plot"]
MARKS = {"confirmed": ("o", "#006b4f"), "fell_back": ("X", "#b34700"), "unproven": ("s", "0.5"), None: ("d", "0.8")}
STYLES = {"eager_flash": ("#b34700", "^"), "inductor_static": ("#003f7f", "s"), "inductor_dynamic": ("#5a9bd4", "D")}


def draw_paths(axis, rows):
    """左图：三条路对 eager math 的加速比和 95% 区间；横坐标错开一点，免得叠在一起。"""
    tokens = [row["token_count"] for row in rows]
    for shift, (name, (color, marker)) in enumerate(STYLES.items()):
        paths = [row["paths"][name] for row in rows]
        error = [[abs(path["speedup"] - path["speedup_ci95"][side]) for path in paths] for side in (0, 1)]
        places = [count * 1.12 ** (shift - 1) for count in tokens]
        axis.errorbar(places, [path["speedup"] for path in paths], yerr=error, color=color, marker=marker, capsize=3, label=name)
    axis.axhline(1, color="0.4", linestyle="--")
    axis.set(xscale="log", xlabel="token count T", ylabel="speed-up over eager math", title="Paths of one decoder layer")
    axis.set_xticks(tokens, [str(token) for token in tokens])
    axis.minorticks_off()
    axis.legend(frameon=False, fontsize=9)


def draw_audit(axis, items, labels, title):
    """一行一段：左边是计划的路，右边是看见的路，中间连线；标记和末尾的字是判定。"""
    for number, item in enumerate(items):
        seen = " or ".join(item["observed"] or []) or "no signature"
        marker, color = MARKS[item["verdict"]]
        axis.plot([0, 1], [number, number], "-", color=color, marker=marker)
        axis.text(-0.12, number, f"{labels[number]}:  {item['planned']}", ha="right", va="center", fontsize=9)
        axis.text(1.12, number, f"{seen}  [{item['verdict'] or 'TODO 3'}]", ha="left", va="center", fontsize=9)
    axis.set(xlim=(-2.2, 3.4), ylim=(len(items) - 0.4, -1.2), title=title)
    axis.text(0, -0.8, "planned", ha="center", fontsize=8)
    axis.text(1, -0.8, "observed", ha="center", fontsize=8)
    axis.axis("off")


def plot_capstone(report, note=""):
    """一份结果 → figure（三幅）。"""
    hardware, cases, block = report["hardware"], report["cases"], report["block_audit"] or []
    with plt.style.context("default"):
        fig, axes = plt.subplots(1, 3, figsize=(20, 5.4), gridspec_kw={"width_ratios": [1, 1.4, 1.4]})
        if report["candidate_matrix"]:
            draw_paths(axes[0], report["candidate_matrix"])
        draw_audit(axes[1], cases, [item["case"] for item in cases], "Eight situations: plan and observation")
        draw_audit(axes[2], block, [item["kind"] for item in block], "One decoder layer, segment by segment")
        fig.suptitle(f"{note}{hardware['device']}, torch {hardware['torch_version']}")
        fig.tight_layout()
    return fig

# %% 录好的样例 slug="exp-sample" sample="assets/samples/08_capstone_cpu.json" tags=["plot"]
# 真实的一次 CPU 测量。
import json

# %% 图 slug="exp-figure" tags=["plot"]
own_report = load_report(newest_result(GPU_RESULT_PATH))
if own_report is None:
    print("没有你自己的结果，下面画的是录好的样例，不是你的机器。")
plot_capstone(own_report or RECORDED_SAMPLE, "" if own_report else "Recorded sample, not your machine: ")
plt.show()

# %% [markdown] slug="step-5-5"
# *图 4　左：三条路对 eager math 的加速比，竖线是 95% 区间。中：八种情形，左端是计划的路，右端是看见的路；圆点是 confirmed，叉是 fell_back，方块是 unproven。右：一层 decoder 的计划，逐段审计。*
#
# ### 5.5 解释与决定（Interpret and decide）
#
# 先看中间那幅。八种情形都真的跑过：
#
# | 情形 | 计划 | 看见 | 判定 | 教训 |
# |---|---|---|---|---|
# | 普通输入 | flash | flash | `confirmed` | |
# | 给 MATH 排第一 | math | flash | `fell_back` | CPU 上 SDPA 的次序是写死的，`set_priority` 不起作用 |
# | 只许 MATH | math | math | `confirmed` | 要限定，就只留一个 |
# | dropout 0.1 | flash | math | `fell_back` | 能力门要有 `requires` |
# | 三维输入 | flash | math | `fell_back` | 同上；形状“看起来没错” |
# | SwiGLU 编译后 | inductor | 生成的 kernel | `confirmed` | static 和 dynamic 的 kernel 同名，证据分不清 |
# | 同上，不开 kernel 事件 | inductor | 什么也没有 | `unproven` | 换取证的办法，不是修代码 |
# | 编译份数到了上限 | inductor | eager | `fell_back` | 没有异常；torch 只在日志里说一声 |
#
# 注意四次 `fell_back` 里，有两次（dropout、三维输入）换成本章的 `CPU_BACKENDS` 就不会发生：`requires` 会让计划直接写 `sdpa_math`。**审计查出来的每一次退回，都应当变成能力门里的一道门。** 这就是图 1 里那条虚线。
#
# | 你看到的 | 下一步 |
# |---|---|
# | `max_error` 大，`output_close` 是 `False` | 停下：先查数值，别看时间 |
# | 有 `fell_back` | 找出原因，给能力门加一道，再做计划 |
# | 有 `unproven` | 换一种证据；在那之前不要说“走了” |
# | 全是 `confirmed`，也有 `faster` | 只给这些形状用，放进真实模型再测 |
# | 全是 `confirmed`，却都是 `tie` | 路走对了，只是不值得；保留 eager |
#
# 再看左边那幅。样例里 $T=1$ 时三条路都判为 `faster`：1.09、1.31、1.33 倍；$T=256$ 时全是 `tie`。每个倍数都由配对的那一批 eager math 算出；5.3 只打印第一批的 eager math，所以拿打印的两个中位数直接相除，得数会不同。录的时候机器上还有别的任务，$T=256$ 的区间因此很宽；换一台安静的机器，判定可能不同，中间和右边那两幅却不会变。**审计不怕吵，计时怕。**
#
# **整层的速度，要由整层来测。** 右边那幅是一段一段跑的，只用来取证；左边那幅才是整层的时间。第 4 章测过：旁边有大的矩阵乘时，融合一段逐元素的计算，整体几乎看不出来。
#
# **什么是测出来的，什么是读来的。** CPU 的数字和判定来自一台 2 核 CPU（AMD EPYC，torch 2.13）；第三步的表来自各项目的源文件；`real_gpu` 没有运行过。

# %% [markdown] slug="questions"
# ## 思考题（Questions to think on）
#
# 1. `seq_len` 进了键，每个长度都是一次未命中。怎样让键变窄而不出陈旧命中？（想想能力门到底问了什么；第 6 章的分桶有用吗？）
# 2. `FieldLog` 记的是“这一次读过的字段”。若检查写成“dtype 不对就不再看长度”，记下的字段会少吗？会不会因此出陈旧命中？
# 3. 规则 5 让 `inductor_static` 和 `inductor_dynamic` 分不清。还能用什么证据把它们分开？
# 4. `run_order` 会不会排不出来？什么样的组会让它卡住？谁保证了这不会发生？
# 5. 审计很贵，不能每次调用都做。什么时候做一次？结论多久算过期？
# 6. 一个明确的请求办不到，抛异常；自动选择办不到，回退。如果一个**自动**选择的计划被审计为 `fell_back`，应当抛异常、记日志，还是改计划？
#
# <details><summary>一点线索</summary>
#
# 1：能力门只问“长度是否不超过上限”。键里可以放比较的结果，而不是长度本身；这正是 torch 的 guard 做的事。2：会少；少了的字段在这一次确实没有影响结论，所以用“读过的字段和它们的值”作键仍然正确，但同一份计划的键可能长短不一。3：编译时的 guard、重编译计数，或换一个长度看会不会重新编译。4：缩成点之后有环就排不出来；`select_groups` 的 `would_create_cycle` 保证没有。5：换版本、换硬件、换驱动之后，和每次改能力门之后。6：先记日志并改能力门；若结果的正确性取决于走哪条路（例如确定性），就该抛。
#
# </details>

# %% [markdown] slug="mistakes"
# ## 常见误区（Common mistakes）
#
# | 误区 | 事实 |
# |---|---|
# | 设了优先级，就会照办 | CPU 上的 SDPA 不照办，也不告诉你；要看证据 |
# | 缓存键越宽越安全 | 宽了没有陈旧命中，却次次未命中；键应当恰好是检查读过的字段 |
# | 键里放 dtype 和形状就够了 | dropout、维数、stride 都可能改变结论 |
# | 没有证据，就当走了（或没走） | 那是第三种结论：`unproven` |
# | 计划的路看见了，就是 confirmed | 别的路也看见了，说明有一部分退回去了 |
# | 请求办不到，换一条能走的 | 明确的请求要抛异常，带上理由 |
# | kernel 名能分清静态和动态编译 | 名字一样；要看 guard 和重编译次数 |
# | 每一段都快，整层就快 | 段与段之间的搬运和启动，只有整层才看得见 |

# %% [markdown] slug="summary-text"
# ## 收尾：总测试（Final check）
#
# 三组测试一起再跑一遍。全部通过时打印一行 ✅。这一格不计分。

# %% 总测试 slug="summary" tags=["summary"] nbgrader={"grade": false, "grade_id": "summary", "locked": true, "schema_version": 3, "solution": false, "task": false}
def test_capstone():
    test_build_plan()
    test_dispatch()
    test_audit()
    print('✅ 三个 TODO 的可见测试全部通过：计划、带缓存的分派、审计都符合规则。')


test_capstone()

# %% [markdown] slug="links"
# ## 小结与链接（Summary and links）
#
# - 计划写应该，证据写事实，审计把两者并排放。
# - 缓存键恰好是检查读过的字段：少了是陈旧命中，多了是白费。
# - 明确的请求办不到，抛异常；自动选择办不到，回退；两者都留理由。
# - `confirmed`、`fell_back`、`unproven` 是三种结论，各有各的下一步。
#
# 八章到这里就完了。回到{{chapter:01_preflight|第 1 章}}，换一台机器，把实验再跑一遍：数字会变，方法不变。
#
# **资料来源**（文件路径都相对于各自的仓库）
#
# 1. PyTorch，`aten/src/ATen/native/transformers/sdp_utils_cpp.cpp`：`priority_order_cpp` 的次序是常量，flash 在前、math 在后；CUDA 一边在 `aten/src/ATen/native/transformers/cuda/sdp_utils.cpp`。[`sdpa_kernel` 的文档](https://docs.pytorch.org/docs/stable/generated/torch.nn.attention.sdpa_kernel.html)。
# 2. PyTorch，[`torch/_inductor/pattern_matcher.py`](https://github.com/pytorch/pytorch/blob/main/torch/_inductor/pattern_matcher.py)：每个目标算子一张按登记次序的表，节点从后往前走。
# 3. vLLM，[`rms_quant_fusion.py`](https://github.com/vllm-project/vllm/blob/main/vllm/compilation/passes/fusion/rms_quant_fusion.py)：带 residual 的模式先登记；`matched_count`。
# 4. vLLM，[`platforms/cuda.py`](https://github.com/vllm-project/vllm/blob/main/vllm/platforms/cuda.py)：`get_valid_backends` 收集每个后端的理由；`get_attn_backend_cls` 对明确而无效的选择抛 `ValueError`。
# 5. PyTorch，[`partitioner.py`](https://github.com/pytorch/pytorch/blob/main/torch/fx/passes/infra/partitioner.py)：合并之前查环。
# 6. Torch-TensorRT，[`_ConverterRegistry.py`](https://github.com/pytorch/TensorRT/blob/main/py/torch_tensorrt/dynamo/conversion/_ConverterRegistry.py)：`HIGH` 插到表头；[`partitioning/`](https://github.com/pytorch/TensorRT/tree/main/py/torch_tensorrt/dynamo/partitioning)：太小的块交回 PyTorch，并写进 debug 日志。
# 7. ONNX Runtime，[`graph_partitioner.cc`](https://github.com/microsoft/onnxruntime/blob/main/onnxruntime/core/framework/graph_partitioner.cc)；禁止退回 CPU 的开关是 `session.disable_cpu_ep_fallback`。
# 8. TVM，[`pattern_registry.py`](https://github.com/apache/tvm/blob/main/python/tvm/relax/backend/pattern_registry.py)：列表里靠后的模式优先级更高。
# 9. ExecuTorch，[`partitioner.py`](https://github.com/pytorch/executorch/blob/main/exir/backend/partitioner.py)、[`config_partitioner.py`](https://github.com/pytorch/executorch/blob/main/exir/backend/canonical_partitioners/config_partitioner.py)；XNNPACK 的各项检查用 `why(node, reason=…)` 说明不收的原因。
# 10. SDPA 在 CPU 上的算子名、八种情形的结果：由 5.2 的实验在 torch 2.13（CPU）上得到；图的录制见{{chapter:05_graph_capture|第 5 章}}。
