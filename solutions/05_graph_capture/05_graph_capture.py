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
# # INF-GRAPH-CAPTURE. Graph Capture: from torch.export to Legal Fusion Groups | 图捕获：从 torch.export 到合法的融合组
#
# [![在 Colab 打开本章](https://colab.research.google.com/assets/colab-badge.svg)]({{colab}}) [![在 ModelScope 打开本章](https://img.shields.io/badge/Open%20in-ModelScope-624aff)]({{modelscope}})
#
# **难度**：Medium–Hard ｜ **环境**：CPU-first（前四步不需要 torch） ｜ **标签**：图捕获、模式匹配、融合合法性 ｜ **预计用时**：95 分钟（第一至三步 20，三个 TODO 60，其余 15；第五步的实验另计）｜ 版本 {{version}}
#
# {{chapter:04_execution_dispatch|第 4 章 执行分派}}在一串算子里找 SwiGLU，一找就中。把同一个模型交给 `torch.export`，再用同样的办法去找，却一个也没有。模型没有变，变的是你看它的方式：真实的程序不是一串算子，是一张图。本章在图上重做这件事，并且多问一句：找到了，就一定**能**融合吗？
#
# **学完本章，你能够**
#
# 1. 读懂 `torch.export` 交出的图，把 aten 算子名归并成角色（role），去掉只改布局的节点；
# 2. 在有向无环图（DAG）上匹配模式：看边，不看邻居；交换律允许的次序都算；
# 3. 从互相重叠的匹配里，按明确的优先级选出**合法**的融合组（fusion group），并说出每一个被拒的理由；
# 4. 解释两件事：为什么 residual add + RMSNorm 的融合必须有两个输出；为什么有的匹配一旦融合，图里就出现环。
#
# **先修**：{{chapter:04_execution_dispatch|第 4 章 执行分派}}。会 Python 的字典、`set` 和 `itertools.product` 就能做练习。
#
# **上一章**：{{chapter:04_execution_dispatch|第 4 章 执行分派}} ｜ **下一章**：{{chapter:06_dynamic_shapes|第 6 章 动态形状}}
#
# **怎样用这个 notebook**：从上到下读，从上到下运行。遇到 TODO，把 `raise NotImplementedError(...)` 那一行换成你的代码，再运行它后面的测试。没做的 TODO 会在测试里报出自己的编号；这不是错误，是提醒。

# %% [markdown] slug="step-1"
# ## 第一步 捕获一张真实的图（Capturing a real graph）
#
# 对象是一层 Llama 风格的 decoder：RMSNorm、QKV 投影、RoPE、注意力、残差，再接 RMSNorm、SwiGLU、残差。写成公式：
#
# $$h = x + \mathrm{Attn}(\mathrm{RMSNorm}(x)),\qquad y = h + W_d\big(\mathrm{SiLU}(W_g n)\odot W_u n\big),\quad n = \mathrm{RMSNorm}(h)$$
#
# 后一半的 Python 只有两行：
#
# ```python
# n = self.norm2(h)
# return h + self.down(F.silu(self.gate(n)) * self.up(n))
# ```
#
# `torch.export.export(model, args)` 用例子输入走一遍模型，交出一张只含张量计算的图：Python 的控制流没有了，算子都是规范的 ATen 算子<sup>[1]</sup>。图是一列节点（node），每个节点就是一个值<sup>[2]</sup>：
#
# | `op` | 是什么 |
# |---|---|
# | `placeholder` | 图的输入。权重也在这里：export 把参数变成了输入 |
# | `get_attr` | 取一个子模块或常数；本章的图里没有 |
# | `call_function` | 调用一个算子，名字在 `target` 里，如 `aten.linear.default` |
# | `output` | 图的输出，只有一个，排在最后 |
#
# 完整的模型在第五步，那里会现场导出。为了让前四步不依赖 torch，下面这一格放着一份**录好的图**：torch 2.13 导出的一层 decoder。每个节点四个字段。`inputs` 是它用到的节点名，按参数的次序；常数参数（形状、`eps`）没有记。

# %% 录好的图 sample="assets/samples/05_llama_block.json" nbgrader={"grade": false, "grade_id": "recorded_block", "locked": true, "schema_version": 3, "solution": false, "task": false}
import json

# %% 节点列表 nbgrader={"grade": false, "grade_id": "block_nodes", "locked": true, "schema_version": 3, "solution": false, "task": false}
BLOCK_NODES = RECORDED_SAMPLE['nodes']

# %% 看一眼后半张图 slug="look-at-nodes"
print(json.dumps(BLOCK_NODES[-2]))
print(len(BLOCK_NODES), '个节点，最后九个：')
for node in BLOCK_NODES[-9:]:
    print(f"{node['name']:12s} {node['target']:22s} <- {', '.join(node['inputs'])}")

# %% [markdown] slug="step-2"
# ## 第二步 为什么列表不够用（Why a list is not enough）
#
# 上面的输出里，SwiGLU 的四个节点都在：`linear_4`（gate）、`silu`、`linear_5`（up）、`mul_4`。第 4 章的办法是找**连续**的 `linear, silu, multiply`。试一试：

# %% 用第 4 章的办法来找 slug="scan-the-list"
def scan(ops, pattern):
    """第 4 章的连续匹配，只找一个模式：返回每一处的起点。"""
    return [start for start in range(len(ops)) if tuple(ops[start:start + len(pattern)]) == pattern]


targets = [node['target'] for node in BLOCK_NODES if node['op'] == 'call_function']
print('找到的起点：', scan(targets, ('aten.linear.default', 'aten.silu.default', 'aten.mul.Tensor')))

# %% [markdown] slug="step-2-why"
# 一个也没有。`silu` 和 `mul_4` 之间站着 `linear_5`：图是按**执行次序**排成一列的，而乘法要等两个操作数都算完。
#
# ![左：列表里 linear_4、silu、linear_5、mul_4 依次排列，linear_5 隔断了连续匹配；右：同样四个节点画成图，gate 一支和 up 一支在 mul_4 汇合]({{raw:assets/figures/05_list_and_dag.png}})
#
# *图 1　同样四个节点。左边按次序排，`linear_5` 隔在中间；右边按数据的去向画，SwiGLU 是两支汇合。*
#
# 更糟的是，列表的结论取决于作者怎样写那一行。数学上没有差别，导出的次序却不同：
#
# | 写法 | 导出的次序 | 连续匹配 |
# |---|---|---|
# | `F.silu(self.gate(n)) * self.up(n)` | linear, silu, **linear**, mul | 找不到 |
# | `u = self.up(n)`，再 `F.silu(self.gate(n)) * u` | **linear**, linear, silu, mul | 找得到 |
# | `self.up(n) * F.silu(self.gate(n))` | **linear**, linear, silu, mul | 找得到，但 `mul` 的两个输入换了位 |
#
# （三行都导出验证过，torch 2.13。）即使找得到，连续也不等于相连：列表里挨着的两个算子，可能互不相干。**要看边，不要看邻居。**
#
# 图上还有一种噪声：`view`、`transpose`、`getitem`。它们不做算术，只换个看法或取出一份，却把要找的节点隔开。所以分三步走：
#
# 1. **归并**：换成统一的角色，去掉布局节点，把线重新接上（TODO 1）；
# 2. **匹配**：模式是角色加边，在图上找（TODO 2）；
# 3. **选组**：匹配会重叠，也未必合法，按规则挑（TODO 3）。
#
# 真实系统也这样做。PyTorch 的 fx 分区器默认把 `aten.view` 和 `getitem` 当作不含计算的算子<sup>[3]</sup>；Inductor 的 pattern matcher 在 FX 图上找，模式本身也是一张 DAG<sup>[4]</sup>。

# %% [markdown] slug="step-3"
# ## 第三步 什么样的组可以融合（What makes a group legal）
#
# 融合组要变成**一个** kernel：输入读进来，一次跑完，输出写回去。由此得到两个条件。
#
# **条件一：外面要用的值，kernel 得交出来。** 组里某个节点的值被组外的节点用到，或者它是整张图的输出（live output），它就“看得见”。看得见、模式却没有声明为输出的节点，叫**逃逸的中间结果**（escaping intermediate）。硬要融合，那个值就没有了。写成定义：组 $S$，图的输出 $O$，声明的输出 $D\subseteq S$，
#
# $$V(S) = \{\,a\in S \mid a\in O \ \text{或}\ \exists\, b\notin S:\ a\in \mathrm{in}(b)\,\},\qquad \text{没有逃逸} \iff V(S)\subseteq D.$$
#
# residual add + RMSNorm 正是例子。$h = x + a$ 先进 RMSNorm，**后面的残差还要再用一次** $h$。
#
# ![add 的结果 h 同时流向 rms_norm 和后面的残差 add；只有一个输出的融合 kernel 丢掉 h，有两个输出的融合 kernel 同时交出 h 和 norm(h)]({{raw:assets/figures/05_two_outputs.png}})
#
# *图 2　`add` 的值逃出了组。声明两个输出（$h$ 和 $\mathrm{RMSNorm}(h)$）才合法。*
#
# 所以 vLLM 的 `fused_add_rms_norm` 返回两个张量：归一化的结果和 `residual_out`<sup>[5]</sup>。Inductor 的办法是数用户（users）：除了模式的输出，中间节点的用户数必须与模式写的一致，否则以 `multiple_users` 失败<sup>[4]</sup>。
#
# **条件二：组与组之间不能互相等待。** kernel 要等**全部**输入到齐才启动，跑完才交出**全部**输出。把每个组缩成一个点（contraction），图里若出现环，就没有可行的执行次序：
#
# $$\text{组 } S_1,\dots,S_k \text{ 可以一起执行} \iff G/\{S_1,\dots,S_k\} \text{ 没有环}.$$
#
# 环有两种来路：
#
# ![左：组 {a, c} 里 a 的结果经过组外的 b 又回到 c，组要等 b，b 要等组；右：两个组各自没有问题，却互相要对方的结果]({{raw:assets/figures/05_cycles.png}})
#
# *图 3　左：路径从组里出去，经过组外的节点又回来。右：两个组各自合法，合在一起就成环。*
#
# 左图在 Llama 里就有：前后两个残差加法由一条边直接相连，可是第一个 add 的值还要经过整个 MLP 才回到第二个。两个 add 不能进同一个组，除非 MLP 也进去。fx 分区器在合并之前同样做这个检查，会成环就不合并<sup>[3]</sup>。
#
# 注意：逃逸可以靠多声明一个输出来解决；环不行。

# %% [markdown] slug="step-4"
# ## 第四步 练习：归并、匹配、选组（The exercise）
#
# 三个函数，只处理普通的 Python 数据。没有张量，没有计时；同样的输入永远得到同样的输出。
#
# | 函数 | 机制 | 约束 | 测试里的证据 |
# |---|---|---|---|
# | `normalize_graph(nodes)` | 换角色，去布局节点，重新接线 | 次序、重复输入、图的输出都不能丢 | 链、分支、别的命名空间、录好的图 |
# | `match_dag(graph, pattern)` | 角色相同，边都在，交换律 | 全部返回，次序固定 | 两种写法、减法、对称的模式 |
# | `select_groups(graph, matches, priority)` | 按名单，逐个检查 | 不重叠、不逃逸、不成环；理由要全 | 活跃的输出、两组互等、被拒的不占节点 |
#
# **数据的样子**
#
# | 名字 | 结构 |
# |---|---|
# | 原始节点 | `{'name': str, 'op': str, 'target': str, 'inputs': [节点名, ...]}` |
# | 图 graph | `{'nodes': [{'id': str, 'role': str, 'inputs': [id, ...]}, ...], 'outputs': [id, ...]}`，节点按执行次序 |
# | 模式 pattern | `{'name': str, 'roles': {键: 角色}, 'edges': [[源键, 目标键, 槽], ...], 'outputs': [键, ...]}` |
# | 匹配 match | `{'pattern': 模式名, 'map': {键: id}, 'outputs': [键, ...]}` |
#
# 边 `['act', 'out', 0]` 读作：`act` 的值是 `out` 的第 0 个输入。`outputs` 是融合 kernel 肯交出来的值。下面是三张表和六个模式。

# %% 角色表 nbgrader={"grade": false, "grade_id": "role_tables", "locked": true, "schema_version": 3, "solution": false, "task": false}
# aten 算子名（不含命名空间和重载）→ 角色。表里没有的，名字本身就是角色。
ROLES = {'add': 'add', 'mul': 'multiply', 'scaled_dot_product_attention': 'attention'}
# 这些角色不做计算，归并时去掉。
LAYOUT_ROLES = ['view', 'reshape', 'transpose', 'permute', '_operator.getitem']
# 这些角色的输入可以换位。
COMMUTATIVE_ROLES = ['add', 'multiply']

# %% 五个模式 nbgrader={"grade": false, "grade_id": "patterns", "locked": true, "schema_version": 3, "solution": false, "task": false}
def make_pattern(name, roles, edges, outputs):
    """roles 写成 '键:角色 …'，edges 写成 '源-目标-槽 …'。"""
    return {
        'name': name,
        'roles': dict(item.split(':') for item in roles.split()),
        'edges': [[source, target, int(slot)] for source, target, slot in (item.split('-') for item in edges.split())],
        'outputs': outputs.split(),
    }


PATTERNS = [
    make_pattern('swiglu', 'gate:linear act:silu up:linear out:multiply', 'gate-act-0 act-out-0 up-out-1', 'out'),
    make_pattern('silu_mul', 'act:silu out:multiply', 'act-out-0', 'out'),
    make_pattern('rope', 'neg:neg cat:cat a:multiply b:multiply sum:add', 'neg-cat-0 cat-b-0 a-sum-0 b-sum-1', 'sum'),
    make_pattern('add_rms_norm', 'sum:add norm:rms_norm', 'sum-norm-0', 'sum norm'),
    make_pattern('add_rms_norm_1out', 'sum:add norm:rms_norm', 'sum-norm-0', 'norm'),
    make_pattern('two_residuals', 'first:add second:add', 'first-second-0', 'first second'),
]

# %% [markdown] slug="todo1-text"
# ### 4.1 TODO 1：归并（normalize the graph）
#
# 用时 15 分钟 ｜ 难度 ●●○ ｜ 要写的：一个循环，约 10 行
#
# 输入是原始节点的列表，按执行次序：用到一个值之前，它的节点已经出现过。输出是图。
#
# **规则**（测试只依据这几条）
#
# 1. **角色**：`op` 是 `placeholder` 或 `get_attr` 的，角色是 `'input'`。`target` 形如 `aten.名字.重载` 的，用名字去查 `ROLES`；查不到，名字本身就是角色：`aten.rms_norm.default` → `rms_norm`，`aten.mul.Tensor` 和 `aten.mul.Scalar` 都是 `multiply`。名字要**整个相等**：原地版本 `aten.mul_.Tensor` 会改写输入，它的角色是 `mul_`，不是 `multiply`。
# 2. **别的命名空间**：`target` 不以 `aten.` 开头的，整个 `target` 就是角色（如 `_operator.getitem`、`mylib.mul.default`）。只有 aten 的名字才查表。
# 3. **去掉布局节点**：角色在 `LAYOUT_ROLES` 里的节点不进图。谁用它，就改用它的**第 0 个输入**；那个输入若也被去掉了，继续往前找。`view` 有时带着别的输入（动态形状），也只看第 0 个。
# 4. **其余节点按原来的次序留下**，写成 `{'id': 名字, 'role': 角色, 'inputs': [...]}`。`inputs` 保持次序；**重复的也留着**：`mul(x, x)` 有两个输入。
# 5. **`op` 是 `output` 的节点不进图**：它的输入（同样改接过）就是图的 `outputs`，次序和重复都保留。
# 6. **只读**：不改 `nodes` 和两张表；同样的输入给同样的结果。
#
# > 这里丢了信息：`getitem` 取的是第几份、`view` 成什么形状，归并以后都看不出来。`reshape` 有时还要复制数据；它不做算术，这里一样去掉。找融合候选够用，拿去执行就不够了。
#
# 一行规格，可以运行：同一个 `target` 拆成三段；查表时给出缺省值。

# %% TODO 1 的规格 slug="todo1-spec"
target = 'aten.mul.Tensor'
(target.split('.'), ROLES.get('mul', 'mul'), ROLES.get('mul_', 'mul_'))

# %% [markdown] slug="todo1-hints"
# <details><summary>提示 1（方向）</summary>
#
# 用一个字典 `source`，记住“被去掉的节点 → 它最终指向谁”。节点按次序来，所以查一次就够：前面的已经改接过了。
#
# </details>
# <details><summary>提示 2（工具）</summary>
#
# `source.get(name, name)`：去掉了就换，没去掉就是它自己。先算改接过的 `inputs`，再看这个节点是 `output`、布局节点，还是普通节点。
#
# </details>
# <details><summary>提示 3（自查）</summary>
#
# `view` 的 `view` 还连得上吗？如果记的是 `node['inputs'][0]`，而不是改接过的 `inputs[0]`，两个连续的布局节点就断了。
#
# </details>

# %% TODO 1 归并 todo=1 stub="请先完成 TODO 1：填好 kept 和 outputs（规则见 4.1）" nbgrader={"grade": false, "grade_id": "todo1", "locked": false, "schema_version": 3, "solution": true, "task": false}
def normalize_graph(nodes):
    """torch.export 的节点列表 → 图：角色统一，布局节点去掉，线重新接好。

    返回 {'nodes': [{'id', 'role', 'inputs'}, ...], 'outputs': [id, ...]}，节点按原来的次序。
    """
    source = {}  # 被去掉的节点 → 代替它的节点
    kept = []
    outputs = []
    # TODO 1：按次序走一遍 nodes
    ### BEGIN SOLUTION
    for node in nodes:
        inputs = [source.get(name, name) for name in node['inputs']]
        role = node['target']
        if node['op'] in ('placeholder', 'get_attr'):
            role = 'input'
        elif role.startswith('aten.'):
            name = role.split('.')[1]
            role = ROLES.get(name, name)
        if node['op'] == 'output':
            outputs = inputs
        elif role in LAYOUT_ROLES:
            source[node['name']] = inputs[0]
        else:
            kept.append({'id': node['name'], 'role': role, 'inputs': inputs})
    ### END SOLUTION
    return {'nodes': kept, 'outputs': outputs}

# %% [markdown] slug="todo1-tests-text"
# **TODO 1 的测试。** 每一格检查一种行为，各有各的分。几格同时不过时，先改最上面的一格：下面几格往往是同一个错。测试里的图写成文字：`'y = aten.mul.Tensor(a, b)'` 是一个节点，单独的 `'x'` 是输入，`'return y'` 是输出。

# %% 图的格式：角色、次序、输入和输出 todo=1 step="4.1 TODO 1" nbgrader={"grade": true, "grade_id": "todo1_record", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
def difference(got, want, where='返回值'):
    """第一处不同，用话说出来；完全一样时是空串。连类型一起比。"""
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


def parsed(line):
    """'y = mul(a, b)' → ('y', 'mul', ['a', 'b'])；'x' → ('x', '', [])；'return y' → ('return', '', ['y'])。"""
    if line.startswith('return '):
        return 'return', '', [name.strip() for name in line[7:].split(',')]
    name, _, call = line.partition(' = ')
    called, _, rest = call.partition('(')
    return name, called, [part.strip() for part in rest.rstrip(')').split(',') if part.strip()]


def raw(*lines):
    """文字 → 原始节点的列表。"""
    nodes = []
    for name, target, inputs in map(parsed, lines):
        op = 'output' if name == 'return' else 'call_function' if target else 'placeholder'
        nodes.append({'name': 'output' if op == 'output' else name, 'op': op,
                      'target': target or ('output' if op == 'output' else name), 'inputs': inputs})
    return nodes


def dag(*lines):
    """文字 → 归并后的图：'y = multiply(a, b)' 里写的是角色。"""
    triples = [parsed(line) for line in lines]
    nodes = [{'id': name, 'role': role or 'input', 'inputs': inputs} for name, role, inputs in triples if name != 'return']
    return {'nodes': nodes, 'outputs': next((inputs for name, _, inputs in triples if name == 'return'), [])}


def check_normalize(case, lines, want, cause, step):
    check(case, normalize_graph, (raw(*lines),), want, cause, step)


def check_normalize_record():
    lines = ['x', 'w', 'n = aten.rms_norm.default(x, w)', 's = aten.silu.default(n)', 'return s']
    want = dag('x', 'w', 'n = rms_norm(x, w)', 's = silu(n)', 'return s')
    cause = "每个节点是 {'id', 'role', 'inputs'}，输入节点也在内；output 不进 nodes，它的输入是 outputs"
    check_normalize('没有布局节点的一串', lines, want, cause, '4.1 和“数据的样子”')


check_normalize_record()

# %% 角色：查表、缺省、命名空间 todo=1 step="4.1 规则 1 和规则 2" nbgrader={"grade": true, "grade_id": "todo1_roles", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
def check_roles():
    step = '4.1 规则 1 和规则 2'
    cases = [
        ('aten.mul.Tensor', 'multiply', '用中间那一段名字查 ROLES'),
        ('aten.mul.Scalar', 'multiply', '重载（最后一段）不影响角色'),
        ('aten.add.Tensor', 'add', '用中间那一段名字查 ROLES'),
        ('aten.scaled_dot_product_attention.default', 'attention', '用中间那一段名字查 ROLES'),
        ('aten.softmax.int', 'softmax', '表里没有的，名字本身就是角色；不是 None，也不是整个 target'),
        ('aten.mul_.Tensor', 'mul_', '名字要整个相等；原地版本 mul_ 不是 mul'),
        ('aten.addmm.default', 'addmm', '名字要整个相等；不能按前缀比'),
        ('mylib.mul.default', 'mylib.mul.default', '别的命名空间不查表，整个 target 就是角色'),
    ]
    for target, role, cause in cases:
        lines = ['a', f'y = {target}(a)', 'return y']
        check_normalize(target, lines, dag('a', f'y = {role}(a)', 'return y'), cause, step)


check_roles()

# %% 去掉布局节点，重新接线 todo=1 step="4.1 规则 3" nbgrader={"grade": true, "grade_id": "todo1_rewire", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
def check_rewire():
    step = '4.1 规则 3'
    lines = ['x', 'v = aten.view.default(x)', 's = aten.silu.default(v)', 'return s']
    want = dag('x', 's = silu(x)', 'return s')
    check_normalize('一个 view', lines, want, 'view 不进图；用它的节点改用它的输入', step)
    lines = ['x', 'v = aten.view.default(x)', 't = aten.transpose.int(v)', 'r = aten.reshape.default(t)',
             's = aten.silu.default(r)', 'return s']
    check_normalize('三个连着的布局节点', lines, want, '只往前找了一步；被去掉的输入要继续往前找', step)
    lines = ['x', 'c = aten.chunk.default(x)', 'g0 = _operator.getitem(c)', 'g1 = _operator.getitem(c)',
             'n = aten.neg.default(g1)', 'k = aten.cat.default(n, g0)', 'return k']
    want = dag('x', 'c = chunk(x)', 'n = neg(c)', 'k = cat(n, c)', 'return k')
    check_normalize('chunk 与 getitem', lines, want, 'getitem 在 LAYOUT_ROLES 里，要去掉；chunk 不在，要留着', step)
    lines = ['x', 'v = aten.view.default(x)', 's = aten.silu.default(v)', 'm = aten.mul.Tensor(s, v)', 'return m']
    want = dag('x', 's = silu(x)', 'm = multiply(s, x)', 'return m')
    check_normalize('一个 view 有两个用户', lines, want, '每一个用到它的节点都要改接', step)


check_rewire()

# %% 输入的次序与重复 todo=1 step="4.1 规则 4" nbgrader={"grade": true, "grade_id": "todo1_inputs", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
def check_inputs():
    step, cause = '4.1 规则 4', 'inputs 要保持次序，重复的也留着；不能用 set，也不能排序'
    lines = ['x', 'v = aten.view.default(x)', 'm = aten.mul.Tensor(x, v)', 'return m']
    check_normalize('x 乘 view(x)', lines, dag('x', 'm = multiply(x, x)', 'return m'), cause, step)
    lines = ['b', 'a', 'd = aten.sub.Tensor(b, a)', 'e = aten.sub.Tensor(a, b)', 'return d, e']
    want = dag('b', 'a', 'd = sub(b, a)', 'e = sub(a, b)', 'return d, e')
    check_normalize('减法的两种次序', lines, want, cause, step)


check_inputs()

# %% 图的输出 todo=1 step="4.1 规则 5" nbgrader={"grade": true, "grade_id": "todo1_outputs", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
def check_outputs():
    step = '4.1 规则 5'
    lines = ['x', 's = aten.silu.default(x)', 'v = aten.view.default(s)', 'return v']
    want = dag('x', 's = silu(x)', 'return s')
    check_normalize('输出是一个 view', lines, want, 'outputs 也要改接', step)
    lines = ['x', 's = aten.silu.default(x)', 't = aten.tanh.default(x)', 'v = aten.view.default(t)', 'return v, x, s, t']
    want = dag('x', 's = silu(x)', 't = tanh(x)', 'return t, x, s, t')
    check_normalize('四个输出', lines, want, 'outputs 保持次序，重复的也留着', step)


check_outputs()

# %% 录好的一层 decoder todo=1 step="4.1 TODO 1" nbgrader={"grade": true, "grade_id": "todo1_block", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
def check_block():
    def block_tail():
        block = normalize_graph(BLOCK_NODES)
        return {**block, 'nodes': block['nodes'][-7:]}

    def count_nodes():
        roles = [node['role'] for node in normalize_graph(BLOCK_NODES)['nodes']]
        return {'nodes': len(roles), 'inputs': roles.count('input'), 'linears': roles.count('linear')}

    step, want = '4.1 TODO 1', dag(
        'rms_norm_1 = rms_norm(add_2, p_layers_0_norm2_weight)', 'linear_4 = linear(rms_norm_1, p_layers_0_gate_weight)',
        'silu = silu(linear_4)', 'linear_5 = linear(rms_norm_1, p_layers_0_up_weight)',
        'mul_4 = multiply(silu, linear_5)', 'linear_6 = linear(mul_4, p_layers_0_down_weight)', 'add_3 = add(add_2, linear_6)',
        'return add_3',
    )
    cause = '前面的测试都通过时，多半是次序变了，或少接了一条线'
    check('录好的图的最后七个节点', block_tail, (), want, cause, step)
    cause = f'原来 {len(BLOCK_NODES)} 个，去掉 12 个布局节点和 output'
    check('录好的图的节点数', count_nodes, (), {'nodes': 38, 'inputs': 12, 'linears': 7}, cause, step)


check_block()

# %% 带别的输入的布局节点；get_attr todo=1 step="4.1 规则 1 和规则 3" nbgrader={"grade": true, "grade_id": "todo1_first_input", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# 隐藏测试：评分时检查规则 1 和规则 3 里不常见的节点
### BEGIN HIDDEN TESTS
def check_first_input():
    lines = ['x', 'n', 'v = aten.view.default(x, n)', 's = aten.silu.default(v)', 'return s']
    want = dag('x', 'n', 's = silu(x)', 'return s')
    check_normalize('view 带着动态的大小', lines, want, '只看布局节点的第 0 个输入', '4.1 规则 3')
    nodes = raw('x', 'c', 'm = aten.mul.Tensor(x, c)', 'return m')
    nodes[1].update(op='get_attr', target='constant_0')
    want = dag('x', 'c', 'm = multiply(x, c)', 'return m')
    check('get_attr', normalize_graph, (nodes,), want, "get_attr 的角色也是 'input'", '4.1 规则 1')
    nodes = raw('x', 'y', 'return x')
    nodes[1]['target'] = 'aten.view.default'
    check('名字像算子的输入', normalize_graph, (nodes,), dag('x', 'y', 'return x'), '先看 op，再看 target', '4.1 规则 1')


check_first_input()
### END HIDDEN TESTS

# %% 随机的图；只读、可重复 todo=1 step="4.1 TODO 1" nbgrader={"grade": true, "grade_id": "todo1_random", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
# 隐藏测试：评分时在随机的图上与独立的算法比较，并检查规则 6
### BEGIN HIDDEN TESTS
import copy
import random


def normalize_by_definition(nodes):
    """直接照规则写：每个名字都沿着布局节点往回找。"""
    by_name = {node['name']: node for node in nodes}

    def role_of(node):
        parts = node['target'].split('.')
        if node['op'] != 'call_function':
            return 'input'
        return ROLES.get(parts[1], parts[1]) if parts[0] == 'aten' else node['target']

    def resolve(name):
        while role_of(by_name[name]) in LAYOUT_ROLES:
            name = by_name[name]['inputs'][0]
        return name

    kept = [node for node in nodes if node['op'] != 'output' and role_of(node) not in LAYOUT_ROLES]
    records = [{'id': n['name'], 'role': role_of(n), 'inputs': [resolve(name) for name in n['inputs']]} for n in kept]
    return {'nodes': records, 'outputs': [resolve(name) for name in nodes[-1]['inputs']]}


def check_random_normalize():
    draw, step = random.Random(20260801), '4.1 TODO 1'
    targets = ['aten.view.default', 'aten.transpose.int', '_operator.getitem', 'aten.mul.Tensor', 'aten.sub.Tensor',
               'aten.permute.default', 'aten.add.Tensor', 'other.view.default']
    for _ in range(30):
        lines = ['x', 'y']
        for number in range(draw.randint(1, 12)):
            names = [line.split(' = ')[0] for line in lines]
            lines.append(f"n{number} = {draw.choice(targets)}({', '.join(draw.choices(names, k=2))})")
        nodes = raw(*lines, f"return {', '.join(draw.choices([line.split(' = ')[0] for line in lines], k=2))}")
        before = copy.deepcopy(nodes)
        want = normalize_by_definition(before)
        for case in ('第一次调用', '第二次调用'):
            check(f'{case}，{lines}', normalize_graph, (nodes,), want, '与规则 1 至 5 不符', step)
            assert nodes == before, 'nodes 被改了（例如直接改了 inputs 列表）。请重读：4.1 规则 6'


check_random_normalize()
### END HIDDEN TESTS

# %% [markdown] slug="todo1-instructor" todo=1 tags=["instructor-only"]
# #### 讲解：TODO 1（只在教师版）
#
# **为什么这样写。** 节点按执行次序来，用到的值总在前面。所以 `source` 里存的永远是最终的去处，查一次就够，不必递归。先算 `inputs` 再分三种情况，`outputs` 的改接就不会忘。
#
# **复杂度。** 设边数 $e$：$O(e)$。
#
# **常见错误**
#
# | 写法 | 后果 | 哪一格抓住 |
# |---|---|---|
# | `source[...] = node['inputs'][0]` | 连着的布局节点断在中间 | `todo1_rewire` |
# | `for key in ROLES: if key in target` | `addmm` 变成 `add`，`mul_` 变成 `multiply` | `todo1_roles` |
# | 任何命名空间都取第 1 段查表 | 别的库的 `mul` 被当成 aten 的 | `todo1_roles` |
# | `set(inputs)` | `mul(x, x)` 只剩一个输入 | `todo1_inputs` |
# | `outputs = node['inputs']` | 输出指向已去掉的节点 | `todo1_outputs` |
# | `inputs[-1]` | 带动态大小的 `view` 接错 | `todo1_first_input` |
#
# **评分说明。** 可见 25 分，隐藏 7 分。

# %% [markdown] slug="todo2-text"
# ### 4.2 TODO 2：在图上匹配（match the DAG）
#
# 用时 20 分钟 ｜ 难度 ●●● ｜ 要写的：约 10 行
#
# 在图里找模式的每一处出现。一处出现是一张对照表（map）：`{模式的键: 节点的 id}`。用数学的话说，是一个保持角色和边的单射（injection）$\varphi$：
#
# $$\varphi: K\to N,\qquad \mathrm{role}(\varphi(k)) = r_k,\qquad (s, t, i)\in E \Rightarrow \mathrm{in}_{\pi_t(i)}(\varphi(t)) = \varphi(s).$$
#
# $K$ 是模式的键，$E$ 是模式的边，$\mathrm{in}_i$ 是第 $i$ 个输入。$\pi_t$ 是目标 $t$ 的输入的一个排列；$t$ 不可交换时，只能是不动的那一个。
#
# **规则**（测试只依据这几条）
#
# 1. **角色相同**：每个键对到一个角色相同的节点；**不同的键对到不同的节点**。
# 2. **边都在**：模式的每条边 `[源键, 目标键, 槽]` 要求：目标节点的第“槽”个输入，正是源节点。没有那么多输入，就不匹配。方向不能反。
# 3. **交换律**：目标的角色在 `COMMUTATIVE_ROLES` 里时，它的输入可以重新排列。准确地说：**存在一种排列**，使指向它的**所有**边**同时**成立。别的角色（如 `sub`）不许换位。
# 4. **模式没提的，不管**：节点可以有别的输入、别的用户；列表里离得多远也不要紧。会不会逃逸、成环，是 TODO 3 的事。
# 5. **全部返回**：每一张合格的 map 都要，节点可以在几张里重复出现；对称的模式会给出两张互换的 map，都留下。没有就返回 `[]`。
# 6. **次序**：键按 `pattern['roles']` 的先后排开，每张 map 就成了一列位置（节点在 `graph['nodes']` 里的下标）；按这列位置的**字典序**从小到大。
# 7. **只读**：不改 `graph`、`pattern`；同样的输入给同样的结果。
#
# 图已经归并过；`edges` 可以是空的（那时只看角色）。规模很小，逐个组合地试就够了。
#
# 一行规格，可以运行：`product` 的次序正好是字典序；`permutations` 给出全部排列。

# %% TODO 2 的规格 slug="todo2-spec"
from itertools import permutations, product

(list(product('ab', 'xy')), list(permutations(['s', 'u'])))

# %% [markdown] slug="todo2-hints"
# <details><summary>提示 1（方向）</summary>
#
# 先给每个键列出候选：角色相同的节点，按图的次序。再用 `product(*candidates)` 走遍所有组合，留下合格的。组合的次序就是规则 6 的次序，不用再排。
#
# </details>
# <details><summary>提示 2（一个目标一次判断）</summary>
#
# 规则 3 说的是“所有边同时成立”，所以要按**目标**来判断，不能一条边一条边地看。对每个键：`wanted` 是指向它的边，写成一列 `(槽, 源节点的 id)`；`orders` 是它的输入的全部排列（可交换），或者只有原来的一种。
#
# </details>
# <details><summary>提示 3（自查）</summary>
#
# 输入 `m = multiply(s, s)`，模式要 `a` 和 `b` 各占一个槽。你会不会把 `a`、`b` 都对到 `s`？下标越界时，你的代码是不匹配，还是抛 `IndexError`？
#
# </details>

# %% TODO 2 在图上匹配 todo=2 stub="请先完成 TODO 2：把合格的对照表放进 maps（规则见 4.2）" nbgrader={"grade": false, "grade_id": "todo2", "locked": false, "schema_version": 3, "solution": true, "task": false}
def match_dag(graph, pattern):
    """模式在图里的每一处出现：[{键: 节点 id}, ...]，按规则 6 的次序；没有时是 []。"""
    by_id = {node['id']: node for node in graph['nodes']}
    keys = list(pattern['roles'])
    maps = []
    # TODO 2：逐个组合地试，合格的放进 maps
    ### BEGIN SOLUTION
    def edges_hold(key, mapping):
        wanted = [(slot, mapping[source]) for source, target, slot in pattern['edges'] if target == key]
        node = by_id[mapping[key]]
        orders = [tuple(node['inputs'])]
        if node['role'] in COMMUTATIVE_ROLES:
            orders = permutations(node['inputs'])
        return any(all(order[slot:slot + 1] == (name,) for slot, name in wanted) for order in orders)

    candidates = [[node['id'] for node in graph['nodes'] if node['role'] == pattern['roles'][key]] for key in keys]
    for chosen in product(*candidates):
        mapping = dict(zip(keys, chosen))
        if len(set(chosen)) == len(keys) and all(edges_hold(key, mapping) for key in keys):
            maps.append(mapping)
    ### END SOLUTION
    return maps

# %% [markdown] slug="todo2-tests-text"
# **TODO 2 的测试。** 图和模式都直接给出，不经过你的 TODO 1。

# %% 一串：角色与边 todo=2 step="4.2 规则 1 和规则 2" nbgrader={"grade": true, "grade_id": "todo2_chain", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
def pattern_of(roles, edges, outputs=''):
    """'a:linear b:silu' 和 'a-b-0' → 模式。"""
    return {
        'name': 'p', 'outputs': outputs.split(), 'roles': dict(item.split(':') for item in roles.split()),
        'edges': [[source, target, int(slot)] for source, target, slot in (item.split('-') for item in edges.split())],
    }


def check_maps(case, graph, pattern, want, cause, step):
    check(case, match_dag, (graph, pattern), want, cause, step)


CHAIN = pattern_of('act:silu out:tanh', 'act-out-0')


def check_chain():
    step = '4.2 规则 1 和规则 2'
    graph = dag('x', 's = silu(x)', 't = tanh(s)', 'return t')
    cause = 'map 是 {键: 节点 id}；键是模式里的名字，值是图里的 id；返回的是列表'
    check_maps('silu 接 tanh', graph, CHAIN, [{'act': 's', 'out': 't'}], cause, step)
    graph = dag('x', 's = silu(x)', 'g = gelu(s)', 'return g')
    check_maps('后面接的是 gelu', graph, CHAIN, [], '角色要相同；没有时返回 []', step)
    graph = dag('x', 't = tanh(x)', 's = silu(t)', 'return s')
    check_maps('方向相反', graph, CHAIN, [], '边有方向：源的值是目标的输入', step)


check_chain()

# %% 看边，不看邻居 todo=2 step="4.2 规则 2 和规则 4" nbgrader={"grade": true, "grade_id": "todo2_edges", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
def check_edges():
    step = '4.2 规则 2 和规则 4'
    graph = dag('x', 's = silu(x)', 't = tanh(x)', 'return s, t')
    check_maps('挨着，却不相连', graph, CHAIN, [], '列表里相邻不算；要看 inputs', step)
    graph = dag('x', 's = silu(x)', 'g = gelu(x)', 'n = neg(g)', 't = tanh(s)', 'return n, t')
    check_maps('相连，却隔着两个节点', graph, CHAIN, [{'act': 's', 'out': 't'}], '离得多远也不要紧；边在就行', step)
    graph = dag('x', 's = silu(x)', 'g = gelu(s)', 't = tanh(g)', 'return t')
    check_maps('中间还有一个 gelu', graph, CHAIN, [], '边要直接相连；经过别的节点到达不算', step)
    graph = dag('x', 's = silu(x)', 't = tanh(s)', 'y = neg(s)', 'return t, y')
    check_maps('silu 还有别的用户', graph, CHAIN, [{'act': 's', 'out': 't'}], '逃逸不归这里管，照样返回', step)


check_edges()

# %% 分支：SwiGLU 的三种写法 todo=2 step="4.2 规则 2 和规则 3" nbgrader={"grade": true, "grade_id": "todo2_branch", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
SWIGLU = pattern_of('gate:linear act:silu up:linear out:multiply', 'gate-act-0 act-out-0 up-out-1', 'out')


def check_branch():
    step = '4.2 规则 2 和规则 3'
    want = [{'gate': 'g', 'act': 's', 'up': 'u', 'out': 'm'}]
    between = dag('n', 'w', 'v', 'g = linear(n, w)', 's = silu(g)', 'u = linear(n, v)', 'm = multiply(s, u)', 'return m')
    check_maps('silu(gate) * up', between, SWIGLU, want, 'up 站在 silu 和 multiply 之间；不能只看连续的节点', step)
    first = dag('n', 'w', 'v', 'u = linear(n, v)', 'g = linear(n, w)', 's = silu(g)', 'm = multiply(s, u)', 'return m')
    check_maps('先算 up', first, SWIGLU, want, '键与节点在列表里的先后无关', step)
    swapped = dag('n', 'w', 'v', 'u = linear(n, v)', 'g = linear(n, w)', 's = silu(g)', 'm = multiply(u, s)', 'return m')
    check_maps('up * silu(gate)', swapped, SWIGLU, want, '乘法的两个输入可以换位', step)
    alone = dag('n', 'w', 'u', 'g = linear(n, w)', 's = silu(g)', 'm = multiply(s, u)', 'return m')
    check_maps('up 是图的输入', alone, SWIGLU, [], '每个键都要对到一个节点，缺一不可', step)


check_branch()

# %% 交换律：谁可以换位 todo=2 step="4.2 规则 3" nbgrader={"grade": true, "grade_id": "todo2_commutative", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
def check_commutative():
    step = '4.2 规则 3'
    for role, swaps in [('multiply', True), ('add', True), ('sub', False), ('div', False)]:
        pattern = pattern_of(f'a:silu out:{role}', 'a-out-0')
        want = [{'a': 's', 'out': 'm'}]
        graph = dag('x', 's = silu(x)', f'm = {role}(s, x)', 'return m')
        check_maps(f'{role}(s, x)，s 应在第 0 个', graph, pattern, want, '没有换位，本来就该匹配', step)
        graph = dag('x', 's = silu(x)', f'm = {role}(x, s)', 'return m')
        cause = f"{role} {'可以' if swaps else '不许'}换位；只有 COMMUTATIVE_ROLES 里的角色可以"
        check_maps(f'{role}(x, s)，s 应在第 0 个', graph, pattern, want if swaps else [], cause, step)
    pattern = pattern_of('a:silu b:tanh out:sub', 'a-out-0 b-out-1')
    graph = dag('x', 's = silu(x)', 't = tanh(x)', 'd = sub(t, s)', 'return d')
    check_maps('sub 的两条边都反了', graph, pattern, [], '槽的号码要对上，不能只看“是不是输入”', step)


check_commutative()

# %% 全部返回，次序固定 todo=2 step="4.2 规则 5 和规则 6" nbgrader={"grade": true, "grade_id": "todo2_all_maps", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
def check_all_maps():
    step = '4.2 规则 5 和规则 6'
    graph = dag('x', 's = silu(x)', 't0 = tanh(s)', 'r = silu(x)', 't1 = tanh(r)', 't2 = tanh(s)', 'return t0, t1, t2')
    want = [{'act': 's', 'out': 't0'}, {'act': 's', 'out': 't2'}, {'act': 'r', 'out': 't1'}]
    check_maps('三处，共用一个 silu', graph, CHAIN, want, '每一处都要；次序先比第一个键的位置，再比第二个', step)
    pattern = pattern_of('out:tanh act:silu', 'act-out-0')
    want = [{'out': 't0', 'act': 's'}, {'out': 't1', 'act': 'r'}, {'out': 't2', 'act': 's'}]
    check_maps('同一张图，roles 里 out 在前', graph, pattern, want, '次序按 roles 里键的先后，不按名字，也不按边', step)
    graph = dag('x', 'p = linear(x)', 'q = linear(x)', 'm = multiply(p, q)', 'return m')
    pattern = pattern_of('a:linear b:linear out:multiply', 'a-out-0 b-out-1')
    want = [{'a': 'p', 'b': 'q', 'out': 'm'}, {'a': 'q', 'b': 'p', 'out': 'm'}]
    check_maps('对称的模式', graph, pattern, want, '两张互换的 map 都留下；不同的键对到不同的节点', step)


check_all_maps()

# %% 不同的键，不同的节点 todo=2 step="4.2 规则 1 和规则 3" nbgrader={"grade": true, "grade_id": "todo2_distinct", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
def check_distinct():
    step = '4.2 规则 1 和规则 3'
    pattern = pattern_of('a:silu b:silu out:multiply', 'a-out-0 b-out-1')
    graph = dag('x', 's = silu(x)', 'm = multiply(s, s)', 'return m')
    check_maps('multiply(s, s)，模式要两个 silu', graph, pattern, [], '两个键不能对到同一个节点', step)
    square = pattern_of('a:silu out:multiply', 'a-out-0 a-out-1')
    check_maps('multiply(s, s)，模式要平方', graph, square, [{'a': 's', 'out': 'm'}], '同一个键的两条边，占两个槽', step)
    graph = dag('x', 's = silu(x)', 'm = multiply(s, x)', 'return m')
    cause = '只有一个输入是 s，排不出两个槽都是 s；所有的边要用同一种排列'
    check_maps('multiply(s, x)，模式要平方', graph, square, [], cause, step)


check_distinct()

# %% 槽越界；没有边 todo=2 step="4.2 规则 2" nbgrader={"grade": true, "grade_id": "todo2_slots", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 隐藏测试：评分时检查规则 2 的边界
### BEGIN HIDDEN TESTS
def check_slots():
    step = '4.2 规则 2'
    graph = dag('x', 's = silu(x)', 'm = multiply(s)', 't = tanh(s)', 'return m, t')
    cause = '没有那么多输入，就是不匹配；不能抛 IndexError，也不能用负的下标绕回去'
    check_maps('multiply 只有一个输入', graph, pattern_of('a:silu out:multiply', 'a-out-1'), [], cause, step)
    check_maps('tanh 没有第 1 个输入', graph, pattern_of('a:silu out:tanh', 'a-out-1'), [], cause, step)
    want = [{'a': 's', 'b': 't'}]
    check_maps('没有边', graph, pattern_of('a:silu b:tanh', ''), want, 'edges 为空时只看角色', '4.2 的说明')
    check_maps('空的图', dag('x', 'return x'), CHAIN, [], '没有就返回 []', '4.2 规则 5')


check_slots()
### END HIDDEN TESTS

# %% 随机的图与模式；只读、可重复 todo=2 step="4.2 TODO 2" nbgrader={"grade": true, "grade_id": "todo2_random", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
# 隐藏测试：评分时在随机的图上与独立的算法比较，并检查规则 7
### BEGIN HIDDEN TESTS
import itertools


def maps_by_definition(graph, pattern):
    """直接照规则写：先列出全部一一对应，再按规则 6 排序。"""
    position = {node['id']: index for index, node in enumerate(graph['nodes'])}
    nodes, keys = {node['id']: node for node in graph['nodes']}, list(pattern['roles'])

    def legal(mapping):
        for key in keys:
            node, edges = nodes[mapping[key]], [edge for edge in pattern['edges'] if edge[1] == key]
            if node['role'] != pattern['roles'][key]:
                return False
            orders = [list(node['inputs'])]
            if node['role'] in COMMUTATIVE_ROLES:
                orders = [list(order) for order in itertools.permutations(node['inputs'])]
            if not any(all(k < len(o) and o[k] == mapping[s] for s, _, k in edges) for o in orders):
                return False
        return True

    found = [dict(zip(keys, chosen)) for chosen in itertools.permutations(position, len(keys))]
    return sorted(filter(legal, found), key=lambda mapping: [position[mapping[key]] for key in keys])


def check_random_maps():
    draw, roles = random.Random(20260802), ['silu', 'add', 'sub', 'linear']
    for _ in range(30):
        lines = ['x']
        for number in range(draw.randint(2, 6)):
            names = [line.split(' = ')[0] for line in lines]
            lines.append(f"n{number} = {draw.choice(roles)}({', '.join(draw.choices(names, k=2))})")
        graph = dag(*lines, 'return x')
        keys = draw.sample('abc', k=draw.randint(2, 3))
        pattern = pattern_of(' '.join(f'{key}:{draw.choice(roles)}' for key in keys), '')
        pattern['edges'] = [[keys[i], keys[i + 1], draw.randint(0, 1)] for i in range(len(keys) - 1)]
        before = copy.deepcopy((graph, pattern))
        want = maps_by_definition(graph, pattern)
        for case in ('第一次调用', '第二次调用'):
            check_maps(f'{case}，{lines} / {pattern}', graph, pattern, want, '与规则 1 至 6 不符', '4.2 TODO 2')
            assert (graph, pattern) == before, 'graph 或 pattern 被改了。请重读：4.2 规则 7'


check_random_maps()
### END HIDDEN TESTS

# %% [markdown] slug="todo2-instructor" todo=2 tags=["instructor-only"]
# #### 讲解：TODO 2（只在教师版）
#
# **为什么这样写。** `product` 按候选的次序产生组合，候选又按图的次序排，所以结果天生是字典序。判断以**目标**为单位，是因为交换律说的是“存在一种排列，所有边同时成立”：一条边一条边地放宽成“源在输入里”，就会把 `multiply(s, x)` 认成平方。切片 `order[slot:slot + 1]` 越界时是空的，比较自然不成立。
#
# **复杂度。** $k$ 个键，每个至多 $n$ 个候选：$O(n^k)$ 个组合。真实系统从一个锚点（anchor）出发，沿着边往回走，几乎不回溯。本章的图只有几十个节点，直接试最清楚。
#
# **常见错误**
#
# | 写法 | 后果 | 哪一格抓住 |
# |---|---|---|
# | `mapping[source] in inputs`，不看槽 | `sub` 反了也匹配；`multiply(s, x)` 成了平方 | `todo2_commutative`、`todo2_distinct` |
# | 只看槽，不管交换律 | `up * silu(gate)` 找不到 | `todo2_branch`、`todo2_commutative` |
# | 忘了 `len(set(chosen)) == len(keys)` | 两个键对到同一个节点 | `todo2_distinct` |
# | 找到一处就返回 | 漏掉其余的 | `todo2_all_maps` |
# | 用过的节点不再用 | 共用的 silu 只出现一次；那是 TODO 3 的事 | `todo2_all_maps` |
# | `order[slot]` | 越界时 `IndexError` | `todo2_slots` |
#
# **评分说明。** 可见 29 分，隐藏 6 分。测试不经过 TODO 1。

# %% [markdown] slug="todo3-text"
# ### 4.3 TODO 3：选出合法的组（select legal groups）
#
# 用时 25 分钟 ｜ 难度 ●●● ｜ 要写的：一个循环，约 20 行
#
# `matches` 是匹配的列表，可能互相重叠。`priority` 是模式名的列表，排在前面的优先。逐个考虑，收下或者拒绝。
#
# **规则**（测试只依据这几条）
#
# 1. **考虑的次序**：先比模式在 `priority` 里的先后；同一个模式，比它**最靠前**的节点在图里的位置，小的在先；还相同，按 `matches` 里的先后。名单里没有的模式排在最后。不比组的大小。
# 2. **成员**：一个匹配的节点就是 `map` 的全部值，写成列表时按图的次序。
# 3. **拒绝的理由**，`reasons` 是列表：
#    - 模式不在名单里：只有 `'not_in_priority'`；
#    - 否则，和**已经收下**的组有公共节点：只有 `'overlap'`；
#    - 否则，下面两项各自判断，成立的都写上，次序固定：`'escaping_intermediate'`、`'would_create_cycle'`。
#
#    没有理由，就收下。
# 4. **逃逸**：成员的值被组外的节点用到，或者它在 `graph['outputs']` 里，就是看得见的。看得见的成员都必须是声明的输出，即 `map[键]`，键在匹配的 `outputs` 里。声明了却没人用，不要紧。
# 5. **成环**：把已经收下的每个组、再加上正在考虑的这一个，各缩成一个点，其余节点不变。缩完的图里有环，就是 `would_create_cycle`。同一个组内部的边不算。
# 6. **被拒的匹配什么也不占**：它的节点，后面的匹配还可以用。
# 7. **返回** `{'groups': [...], 'refused': [...]}`。`groups` 的每一项是 `{'pattern': 名字, 'nodes': [id, ...]}`，`refused` 的每一项再加一个 `'reasons'`。两个列表都按考虑的次序。没有时是 `[]`。
# 8. **只读**：不改 `graph`、`matches`、`priority`（也不给它们排序）；同样的输入给同样的结果。
#
# > 第 4 章的五道门互相独立，所以理由全部收集。这里有先后：有了公共节点，“各缩成一个点”就没有意义，所以 `overlap` 单独报。
#
# 判断有没有环的函数已经给出。你要做的，是把缩完的图写成边。

# %% 有没有环 nbgrader={"grade": false, "grade_id": "has_cycle", "locked": true, "schema_version": 3, "solution": false, "task": false}
def has_cycle(edges):
    """有向边 [(起点, 终点), ...] 组成的图里有没有环；自环也算。"""
    edges = set(edges)
    while edges:
        ends = {end for _, end in edges}
        left = {edge for edge in edges if edge[0] in ends}  # 起点没有人指向的边，不可能在环上
        if left == edges:
            return True
        edges = left
    return False

# %% [markdown] slug="todo3-spec-text"
# 一行规格，可以运行：三个节点 `a → b → c`，再加一条边 `a → c`。把 `a` 和 `c` 缩成一个点 `0`，看看有没有环。

# %% TODO 3 的规格 slug="todo3-spec"
owner_example = {'a': 0, 'c': 0}
contracted = [(owner_example.get(s, s), owner_example.get(t, t)) for s, t in [('a', 'b'), ('b', 'c'), ('a', 'c')]]
(contracted, has_cycle([(s, t) for s, t in contracted if s != t]))

# %% [markdown] slug="todo3-hints"
# <details><summary>提示 1（次序）</summary>
#
# `sorted(matches, key=...)`，键是一对：名单里的下标（不在名单里就用 `len(priority)`），最靠前的位置。`sorted` 是稳定的，规则 1 的第三条不用你管。
#
# </details>
# <details><summary>提示 2（逃逸）</summary>
#
# 先求看得见的：组外每个节点的 `inputs`，再加上 `graph['outputs']`。和成员取交集，再减去声明的输出，剩下的就是逃逸的。
#
# </details>
# <details><summary>提示 3（成环）</summary>
#
# `owner` 记着“节点 → 它属于第几组”。复制一份，把正在考虑的成员也填进去；图里每条边 `输入 → 节点` 的两头都换成 `owner.get(名字, 名字)`；两头相同的丢掉，其余交给 `has_cycle`。别忘了：被拒的不能留在 `owner` 里。
#
# </details>

# %% TODO 3 选出合法的组 todo=3 stub="请先完成 TODO 3：填好 groups 和 refused（规则见 4.3）" nbgrader={"grade": false, "grade_id": "todo3", "locked": false, "schema_version": 3, "solution": true, "task": false}
def select_groups(graph, matches, priority):
    """按优先级从 matches 里选出互不重叠、不逃逸、不成环的组。

    返回 {'groups': [{'pattern', 'nodes'}, ...], 'refused': [{'pattern', 'nodes', 'reasons'}, ...]}。
    """
    position = {node['id']: index for index, node in enumerate(graph['nodes'])}
    groups = []
    refused = []
    owner = {}  # 节点 id → 它所在的、已经收下的组的号码
    # TODO 3：按规则 1 的次序逐个考虑 matches
    ### BEGIN SOLUTION
    def turn(match):
        listed = priority.index(match['pattern']) if match['pattern'] in priority else len(priority)
        return listed, min(position[name] for name in match['map'].values())

    for match in sorted(matches, key=turn):
        members = sorted(match['map'].values(), key=position.get)
        reasons = []
        if match['pattern'] not in priority:
            reasons.append('not_in_priority')
        elif any(name in owner for name in members):
            reasons.append('overlap')
        else:
            visible = {name for node in graph['nodes'] if node['id'] not in members for name in node['inputs']}
            visible |= set(graph['outputs'])
            if (visible & set(members)) - {match['map'][key] for key in match['outputs']}:
                reasons.append('escaping_intermediate')
            trial = {**owner, **dict.fromkeys(members, len(groups))}
            edges = [
                (trial.get(name, name), trial.get(node['id'], node['id'])) for node in graph['nodes'] for name in node['inputs']
            ]
            if has_cycle([(start, end) for start, end in edges if start != end]):
                reasons.append('would_create_cycle')
        record = {'pattern': match['pattern'], 'nodes': members}
        if reasons:
            refused.append({**record, 'reasons': reasons})
        else:
            owner.update(dict.fromkeys(members, len(groups)))
            groups.append(record)
    ### END SOLUTION
    return {'groups': groups, 'refused': refused}

# %% [markdown] slug="todo3-tests-text"
# **TODO 3 的测试。** 图和匹配都直接给出，不经过你的 TODO 1 和 TODO 2。

# %% 收下一个合法的组 todo=3 step="4.3 规则 2 和规则 7" nbgrader={"grade": true, "grade_id": "todo3_group", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
def match_of(name, nodes, outputs):
    """match_of('p', 'a b', 'b')：模式 p 匹配了节点 a、b，声明的输出是 b；键是 k_a、k_b。"""
    return {
        'pattern': name, 'map': {f'k_{node}': node for node in nodes.split()},
        'outputs': [f'k_{node}' for node in outputs.split()],
    }


def group(name, nodes, *reasons):
    """结果里的一项。"""
    record = {'pattern': name, 'nodes': nodes.split()}
    return {**record, 'reasons': list(reasons)} if reasons else record


def check_groups(case, graph, matches, priority, groups, refused, cause, step):
    want = {'groups': groups, 'refused': refused}
    check(case, select_groups, (graph, matches, priority), want, cause, step)


LINE = dag('x', 'a = linear(x)', 'b = silu(a)', 'c = tanh(b)', 'd = neg(c)', 'return d')


def check_one_group():
    step = '4.3 规则 2 和规则 7'
    cause = "每一项是 {'pattern', 'nodes'}；nodes 按图的次序，不按 map 的次序"
    matches = [match_of('p', 'c b', 'c')]
    check_groups('一串里的 b、c', LINE, matches, ['p'], [group('p', 'b c')], [], cause, step)
    check_groups('没有匹配', LINE, [], ['p'], [], [], '没有匹配时两个列表都是 []', step)


check_one_group()

# %% 优先级只看名单 todo=3 step="4.3 规则 1" nbgrader={"grade": true, "grade_id": "todo3_priority", "locked": true, "points": 6, "schema_version": 3, "solution": false, "task": false}
def check_priority():
    step = '4.3 规则 1'
    short, long = match_of('short', 'b c', 'c'), match_of('long', 'a b c', 'c')
    for matches in ([short, long], [long, short]):
        order = ' '.join(match['pattern'] for match in matches)
        cause = '应按 priority 的次序，不按组的大小，也不按 matches 的次序'
        want = [group('short', 'b c')], [group('long', 'a b c', 'overlap')]
        check_groups(f'名单 short long，匹配 {order}', LINE, matches, ['short', 'long'], *want, cause, step)
        want = [group('long', 'a b c')], [group('short', 'b c', 'overlap')]
        check_groups(f'名单 long short，匹配 {order}', LINE, matches, ['long', 'short'], *want, cause, step)
    late, early = match_of('p', 'c d', 'd'), match_of('p', 'b c', 'c')
    want = [group('p', 'b c')], [group('p', 'c d', 'overlap')]
    check_groups('同一个模式', LINE, [late, early], ['p'], *want, '同一个模式，最靠前的节点在前的优先', step)
    far = match_of('first', 'c d', 'd')
    want = [group('first', 'c d'), group('p', 'a b')], []
    cause = '先比名单，再比位置；groups 按考虑的次序排'
    check_groups('名单在前的模式位置靠后', LINE, [match_of('p', 'a b', 'b'), far], ['first', 'p'], *want, cause, step)


check_priority()

# %% 重叠；被拒的不占节点 todo=3 step="4.3 规则 3 和规则 6" nbgrader={"grade": true, "grade_id": "todo3_overlap", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
def check_overlap():
    step = '4.3 规则 3 和规则 6'
    matches = [match_of('p', 'a b', 'b'), match_of('q', 'b c', 'c'), match_of('r', 'c d', 'd')]
    want = [group('p', 'a b'), group('r', 'c d')], [group('q', 'b c', 'overlap')]
    check_groups('q 被拒，r 用 c', LINE, matches, ['p', 'q', 'r'], *want, '被拒的 q 不占节点 c，r 可以用', step)
    matches = [match_of('bad', 'a b c', 'c'), match_of('good', 'a b', 'b')]
    graph = dag('x', 'a = linear(x)', 'b = silu(a)', 'c = tanh(b)', 'd = neg(b)', 'return c, d')
    want = [group('good', 'a b')], [group('bad', 'a b c', 'escaping_intermediate')]
    cause = '因逃逸被拒的，也不占节点；overlap 只和已经收下的组比'
    check_groups('bad 逃逸，good 用同样的节点', graph, matches, ['bad', 'good'], *want, cause, step)


check_overlap()

# %% 逃逸：组外的用户 todo=3 step="4.3 规则 4" nbgrader={"grade": true, "grade_id": "todo3_escape", "locked": true, "points": 4, "schema_version": 3, "solution": false, "task": false}
RESIDUAL = dag('x', 'a', 'h = add(x, a)', 'n = rms_norm(h)', 'm = linear(n)', 'y = add(h, m)', 'return y')


def check_escape():
    step, refused = '4.3 规则 4', [group('p', 'h n', 'escaping_intermediate')]
    cause = 'h 还被后面的残差 add 用到，却没有声明为输出'
    check_groups('add + RMSNorm，一个输出', RESIDUAL, [match_of('p', 'h n', 'n')], ['p'], [], refused, cause, step)
    cause = '两个都声明了，合法'
    check_groups('add + RMSNorm，两个输出', RESIDUAL, [match_of('p', 'h n', 'h n')], ['p'], [group('p', 'h n')], [], cause, step)
    cause = '最后一个节点 n 也要声明：逃逸看的是声明，不是先后'
    check_groups('只声明了 h', RESIDUAL, [match_of('p', 'h n', 'h')], ['p'], [], refused, cause, step)
    cause = '组里自己用的值不算看得见；声明了却没人用，不要紧'
    check_groups('声明了没人用的 b', LINE, [match_of('p', 'b c', 'b c')], ['p'], [group('p', 'b c')], [], cause, step)


check_escape()

# %% 逃逸：图的输出 todo=3 step="4.3 规则 4" nbgrader={"grade": true, "grade_id": "todo3_live_output", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
def check_live_output():
    step = '4.3 规则 4'
    graph = dag('x', 'a = linear(x)', 'b = silu(a)', 'return b, a')
    cause = 'a 没有组外的用户，但它是图的输出：要看 graph["outputs"]'
    refused = [group('p', 'a b', 'escaping_intermediate')]
    check_groups('a 是图的输出', graph, [match_of('p', 'a b', 'b')], ['p'], [], refused, cause, step)
    want = [group('p', 'a b')], []
    check_groups('a 也声明了', graph, [match_of('p', 'a b', 'a b')], ['p'], *want, '两个输出都声明了，合法', step)


check_live_output()

# %% 成环：经过组外的节点 todo=3 step="4.3 规则 5" nbgrader={"grade": true, "grade_id": "todo3_cycle", "locked": true, "points": 5, "schema_version": 3, "solution": false, "task": false}
def check_cycle():
    step = '4.3 规则 5'
    refused = [group('p', 'h y', 'would_create_cycle')]
    cause = 'h 经过组外的 n、m 回到 y；缩成一个点就有环'
    check_groups('前后两个残差 add', RESIDUAL, [match_of('p', 'h y', 'h y')], ['p'], [], refused, cause, step)
    cause = '路径上的节点都在组里，没有环；同一个组内部的边不算'
    want = [group('p', 'h n m y')], []
    check_groups('连同中间的节点一起', RESIDUAL, [match_of('p', 'h n m y', 'y')], ['p'], *want, cause, step)
    graph = dag('x', 'a = silu(x)', 'b = tanh(x)', 'c = add(a, b)', 'return c')
    want = [group('p', 'a c')], []
    check_groups('b 只进不出', graph, [match_of('p', 'a c', 'c')], ['p'], *want, 'b 不依赖组里的值，没有环', step)


check_cycle()

# %% 理由：名单外、两条都写 todo=3 step="4.3 规则 3" nbgrader={"grade": true, "grade_id": "todo3_reasons", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
def check_reasons():
    step = '4.3 规则 3'
    refused = [group('p', 'h y', 'escaping_intermediate', 'would_create_cycle')]
    cause = '逃逸和成环各自判断，成立的都写上，次序固定'
    check_groups('h 没有声明，又成环', RESIDUAL, [match_of('p', 'h y', 'y')], ['p'], [], refused, cause, step)
    matches = [match_of('other', 'a b', 'b'), match_of('p', 'b c', 'c')]
    want = [group('p', 'b c')], [group('other', 'a b', 'not_in_priority')]
    cause = "名单外的模式不收，理由只有 'not_in_priority'；它排在最后考虑"
    check_groups('名单外的模式', LINE, matches, ['p'], *want, cause, step)


check_reasons()

# %% 成环：两个组互相等待 todo=3 step="4.3 规则 5" nbgrader={"grade": true, "grade_id": "todo3_two_groups", "locked": true, "points": 3, "schema_version": 3, "solution": false, "task": false}
# 隐藏测试：评分时检查规则 5 里“已经收下的每个组”
### BEGIN HIDDEN TESTS
def check_two_groups():
    step, cause = '4.3 规则 5', '只看了正在考虑的这一个组；已经收下的组也要缩成点'
    graph = dag('x', 'a = silu(x)', 'b = tanh(x)', 'c = add(a, b)', 'd = multiply(b, a)', 'return c, d')
    matches = [match_of('p', 'a c', 'a c'), match_of('q', 'b d', 'b d')]
    want = [group('p', 'a c')], [group('q', 'b d', 'would_create_cycle')]
    check_groups('p 在先', graph, matches, ['p', 'q'], *want, cause, step)
    want = [group('q', 'b d')], [group('p', 'a c', 'would_create_cycle')]
    check_groups('q 在先', graph, matches, ['q', 'p'], *want, cause, step)
    want = [group('q', 'b d')], [group('p', 'a c', 'escaping_intermediate')]
    matches = [match_of('p', 'a c', 'c'), match_of('q', 'b d', 'b d')]
    check_groups('p 因逃逸被拒，q 就没有环', graph, matches, ['p', 'q'], *want, '被拒的组不能再参加缩点', step)


check_two_groups()
### END HIDDEN TESTS

# %% 随机的图与匹配；只读、可重复 todo=3 step="4.3 TODO 3" nbgrader={"grade": true, "grade_id": "todo3_random", "locked": true, "points": 2, "schema_version": 3, "solution": false, "task": false}
# 隐藏测试：评分时在随机的图上与独立的算法比较，并检查规则 8
### BEGIN HIDDEN TESTS
def groups_by_definition(graph, matches, priority):
    """直接照规则写；环用可达性来判断，不用 has_cycle。"""
    names = [node['id'] for node in graph['nodes']]
    pending = [(priority.index(m['pattern']) if m['pattern'] in priority else len(priority),
                min(names.index(name) for name in m['map'].values()), number) for number, m in enumerate(matches)]
    groups, refused = [], []
    for *_, number in sorted(pending):
        match = matches[number]
        members = [name for name in names if name in match['map'].values()]
        sets = [set(item['nodes']) for item in groups]
        if match['pattern'] not in priority:
            reasons = ['not_in_priority']
        elif any(one & set(members) for one in sets):
            reasons = ['overlap']
        else:
            outside = [name for node in graph['nodes'] if node['id'] not in members for name in node['inputs']]
            declared = [match['map'][key] for key in match['outputs']]
            hidden = [name for name in members if name in outside + graph['outputs'] and name not in declared]
            reasons = ['escaping_intermediate'] * bool(hidden) + ['would_create_cycle'] * stuck(graph, sets + [set(members)])
        record = {'pattern': match['pattern'], 'nodes': members}
        (refused.append({**record, 'reasons': reasons}) if reasons else groups.append(record))
    return {'groups': groups, 'refused': refused}


def stuck(graph, sets):
    """照着执行：每一步跑一个输入都齐了的单元（组或单个节点）；跑不完就是有环。"""
    units = sets + [{node['id']} for node in graph['nodes'] if not any(node['id'] in one for one in sets)]
    inputs, done = {node['id']: set(node['inputs']) for node in graph['nodes']}, set()
    while True:
        ready = [u for u in units if not u <= done and all(inputs[name] <= done | u for name in u)]
        if not ready:
            return len(done) < len(graph['nodes'])
        done |= ready[0]


def check_random_groups():
    draw = random.Random(20260803)
    for _ in range(40):
        lines = ['x']
        for number in range(draw.randint(4, 8)):
            names = [line.split(' = ')[0] for line in lines]
            lines.append(f"n{number} = add({', '.join(draw.choices(names[-4:], k=2))})")
        names = [line.split(' = ')[0] for line in lines[1:]]
        graph = dag(*lines, f'return {names[-1]}')
        matches = []
        for _ in range(draw.randint(1, 5)):
            chosen = draw.sample(names, k=draw.randint(2, 3))
            outputs = chosen if draw.random() < 0.7 else chosen[:1]
            matches.append(match_of(draw.choice('pqr'), ' '.join(chosen), ' '.join(outputs)))
        priority = draw.sample('pqr', k=draw.randint(2, 3))
        before = copy.deepcopy((graph, matches, priority))
        want = groups_by_definition(graph, matches, priority)
        for case in ('第一次调用', '第二次调用'):
            case = f'{case}，{lines} / {matches} / {priority}'
            check(case, select_groups, (graph, matches, priority), want, '与规则 1 至 7 不符', '4.3 TODO 3')
            assert (graph, matches, priority) == before, '输入被改了（例如给 matches 排了序）。请重读：4.3 规则 8'


check_random_groups()
### END HIDDEN TESTS

# %% [markdown] slug="todo3-instructor" todo=3 tags=["instructor-only"]
# #### 讲解：TODO 3（只在教师版）
#
# **为什么这样写。** 次序由一个排序键定下来，之后就是一个一个地试。试的时候只动副本 `trial`，收下了才写进 `owner`，所以被拒的匹配不留痕迹。逃逸只看这一个匹配；成环要把所有收下的组一起缩。
#
# **为什么只检查“这一个组是不是凸的（convex）”不够。** 凸：组里两点之间的路径不经过组外。两个组都可以是凸的，却互相要对方的结果（图 3 右）。把全部组缩成点再找环，两种情况一起查到。
#
# **复杂度。** $m$ 个匹配，$e$ 条边：每次缩图 $O(e)$，`has_cycle` 最坏 $O(e\cdot d)$（$d$ 是最长路径）。
#
# **贪心不是最优。** 先收下的组可能挡住后面两个更好的组。真实系统也多是贪心；可以预期、可以解释，比多融合一个更重要。
#
# **常见错误**
#
# | 写法 | 后果 | 哪一格抓住 |
# |---|---|---|
# | 按组的大小排 | 名单失效 | `todo3_priority` |
# | 考虑过就写进 `owner` | 被拒的也占节点 | `todo3_overlap`、`todo3_two_groups` |
# | 只看组外的用户，不看 `graph['outputs']` | 活跃的输出丢了 | `todo3_live_output` |
# | 允许最后一个节点逃逸，不看声明 | 声明形同虚设 | `todo3_escape` |
# | 不去掉组内的边 | 每个组都“有环” | `todo3_group` |
# | 只缩正在考虑的组 | 两组互等查不出 | `todo3_two_groups` |
# | `matches.sort(...)` | 改了调用者的列表 | `todo3_random` |
#
# **评分说明。** 可见 28 分，隐藏 5 分。测试不经过 TODO 1、2。

# %% [markdown] slug="together-text"
# ### 4.4 合在一起：一层 decoder 的融合组（Putting it together）
#
# 名单故意把 `two_residuals` 放在第一位，把只有一个输出的 `add_rms_norm_1out` 放在 `add_rms_norm` 前面。优先级再高，也不能让不合法的组变合法。

# %% 一层 decoder 的融合组 slug="together" tags=["experiment"]
PRIORITY = ['two_residuals', 'swiglu', 'silu_mul', 'add_rms_norm_1out', 'add_rms_norm', 'rope']


def find_groups(nodes):
    """原始节点 → (归并后的图, 选组的结果)。"""
    graph = normalize_graph(nodes)
    matches = [
        {'pattern': pattern['name'], 'map': mapping, 'outputs': pattern['outputs']}
        for pattern in PATTERNS for mapping in match_dag(graph, pattern)
    ]
    return graph, select_groups(graph, matches, PRIORITY)


try:
    block_graph, block_result = find_groups(BLOCK_NODES)
    for item in block_result['groups']:
        print('+', f"{item['pattern']:18s}", ' '.join(item['nodes']))
    for item in block_result['refused']:
        print('-', f"{item['pattern']:18s}", ' '.join(item['nodes']), '：', ', '.join(item['reasons']))
except NotImplementedError as todo:
    print(todo)

# %% [markdown] slug="together-reading"
# 填完以后应当看到四个组：一个 `swiglu`、一个 `add_rms_norm`、两个 `rope`（q 和 k 各一个）。列表上找不到的 SwiGLU，图上找到了。三个被拒：
#
# - `two_residuals`：`add_2` 的值经过整个 MLP 才回到 `add_3`，成环；
# - `silu_mul`：它的两个节点已经在 `swiglu` 里；
# - `add_rms_norm_1out`：`add_2` 后面还要用，一个输出不够。
#
# 第一个 RMSNorm 没有进组：它前面是图的输入，不是 add。接上第二层，情况就变了（第五步）。
#
# 还要记住：**选出了组，不等于后端有这个 kernel，更不等于它跑了。** 接下去是第 4 章的能力门，和{{chapter:07_execution_evidence|第 7 章 执行证据}}。

# %% [markdown] slug="stop-here"
# ## 🛑 STOP HERE
#
# 先自己做完三个 TODO，跑过上面全部的测试，再往下看。卡住了，先看提示，再重读报错里写的那一步。
#
# 真的做不下去时，参考答案和讲解在这里：[教师版 notebook]({{blob:solutions/05_graph_capture/05_graph_capture.ipynb}})。看完请关掉它，凭自己的理解再写一遍。

# %% [markdown] slug="step-5"
# ## 第五步 可选实验：现场导出（Optional experiment）

# %% [markdown] slug="step-5-questions"
# 前四步用的是录好的图。这一步在你的机器上导出，再用**你自己的三个函数**去找融合组。
#
# | 想知道什么 | 固定什么 | 观察什么 |
# |---|---|---|
# | 录好的图过时了吗 | 模型、大小 | 现场导出的节点和录好的逐个相同吗 |
# | 图对吗（correctness） | 权重、输入 | 导出的程序与 eager 的最大误差 |
# | 层数加倍，图和组怎么变（scaling） | 每层的大小 | 节点数、各模式的组数、各理由的次数 |
# | 在哪一级找（level） | 模型 | 分解（decomposition）以后，还剩几个组 |
#
# 这一步不计分，批改时也不运行。没有 GPU 也能做：图不是在 GPU 上算出来的。

# %% [markdown] slug="step-5-1"
# ### 5.1 设置（Settings）
#
# | `RUN_MODE` | 做什么 | 需要什么 |
# |---|---|---|
# | `'dry_run'` | 不导出，只告诉你怎么打开实验 | 无 |
# | `'real_cpu'` | 在 CPU 上导出并找组 | torch 2.6 以上，做完三个 TODO |
# | `'real_gpu'` | 同样的事，张量放在 GPU 上 | 还要 CUDA |
#
# - 模型很小：找组只看图的样子，和大小无关。
# - 想保留每次结果，就换 `RUN_LABEL`。已有文件的标签会被拒绝；只有 `'default'` 会被替换。

# %% slug="step-5-settings" tags=["settings"]
RUN_MODE = "dry_run"  # 'dry_run' | 'real_cpu' | 'real_gpu'
RUN_LABEL = "default"
PROFILE_ID = "INF-CUDA-MECHANISM"
GPU_RESULT_PATH = f"benchmarks/results/inf_graph_capture_{RUN_LABEL}.json"

LAYER_COUNTS = [1, 2]  # 导出几层的模型；第一个用来画图
TOKEN_COUNT = 8
HIDDEN_SIZE = 64
HEADS = 4
INNER_SIZE = 128

# %% [markdown] slug="step-5-2"
# ### 5.2 运行并保存（Run and save）
#
# **工具**：引入、硬件、设置检查、写文件。各章共用。

# %% slug="exp-imports" include="assets/cells/exp_imports.py" tags=["experiment"]

# %% slug="exp-hardware" include="assets/cells/exp_hardware.py" tags=["experiment"]

# %% slug="exp-mode" include="assets/cells/exp_mode.py" tags=["experiment"]

# %% slug="exp-file" include="assets/cells/exp_file.py" tags=["experiment"]

# %% [markdown] slug="step-5-model"
# **模型。** RoPE 用两半旋转的写法：$x\odot\cos + [-x_2, x_1]\odot\sin$。

# %% slug="step-5-layer" tags=["experiment"]
def rotate(x, cos, sin):
    """RoPE：x (B, heads, T, D)，cos 和 sin (T, D) → 同 x。"""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class DecoderLayer(torch.nn.Module):
    def __init__(self, hidden, heads, inner):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = (torch.nn.RMSNorm(hidden, eps=1e-6) for _ in range(2))
        self.q, self.k, self.v, self.o = (torch.nn.Linear(hidden, hidden, bias=False) for _ in range(4))
        self.gate, self.up = (torch.nn.Linear(hidden, inner, bias=False) for _ in range(2))
        self.down = torch.nn.Linear(inner, hidden, bias=False)

    def forward(self, x, cos, sin):  # x: (B, T, H)，cos 和 sin: (T, H / heads) → (B, T, H)
        n = self.norm1(x)
        q, k, v = (p(n).view(*x.shape[:2], self.heads, -1).transpose(1, 2) for p in (self.q, self.k, self.v))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        attended = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        h = x + self.o(attended.transpose(1, 2).reshape(x.shape))
        n = self.norm2(h)
        return h + self.down(torch.nn.functional.silu(self.gate(n)) * self.up(n))


# %% slug="step-5-decoder" tags=["experiment"]
class Decoder(torch.nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = torch.nn.ModuleList(DecoderLayer(HIDDEN_SIZE, HEADS, INNER_SIZE) for _ in range(layers))

    def forward(self, x, cos, sin):
        for layer in self.layers:
            x = layer(x, cos, sin)
        return x


def make_case(layers, device):
    """→ (模型, 输入)。RMSNorm 的权重取自 U(0.5, 1.5)：漏乘权重就会露馅。"""
    torch.manual_seed(0)
    model = Decoder(layers).eval()
    for layer in model.layers:
        for norm in (layer.norm1, layer.norm2):
            torch.nn.init.uniform_(norm.weight, 0.5, 1.5)
    angles = torch.rand(TOKEN_COUNT, HIDDEN_SIZE // HEADS)
    args = (2.5 * torch.randn(1, TOKEN_COUNT, HIDDEN_SIZE), angles.cos(), angles.sin())
    return model.to(device), tuple(tensor.to(device) for tensor in args)


# %% [markdown] slug="step-5-record-text"
# **从 fx 节点到记录。** `map_arg` 走遍一个节点的参数，遇到别的节点就告诉我们；重复的也会告诉两次。

# %% slug="step-5-record" tags=["experiment"]
def target_name(target):
    """算子的名字：'aten.linear.default'；getitem 是 Python 的内建函数，写成 '_operator.getitem'。"""
    text = str(target)
    return f"{target.__module__}.{target.__name__}" if text.startswith("<") else text


def record_nodes(program):
    """ExportedProgram → 只含文字的节点列表；常数参数不记。"""
    records = []
    for node in program.graph.nodes:
        inputs = []
        torch.fx.node.map_arg((node.args, node.kwargs), lambda used, names=inputs: names.append(used.name))
        records.append({"name": node.name, "op": node.op, "target": target_name(node.target), "inputs": inputs})
    return records


def counted(names):
    """['b', 'a', 'b'] → {'a': 1, 'b': 2}。"""
    return {name: names.count(name) for name in sorted(set(names))}


# %% slug="step-5-row" tags=["experiment"]
import warnings


def timed(function):
    """→ (结果, 毫秒)。分解时 torch 内部的弃用警告与本实验无关，不显示。"""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.perf_counter()
        result = function()
        return result, round(1e3 * (time.perf_counter() - start), 1)


def capture(layers, device):
    """导出一个模型，找组 → (结果的一行, 图, 选组的结果, 原始节点)。"""
    model, args = make_case(layers, device)
    program, export_ms = timed(lambda: torch.export.export(model, args))
    lowered, decompose_ms = timed(program.run_decompositions)
    nodes, lowered_nodes = record_nodes(program), record_nodes(lowered)
    graph, result = find_groups(nodes)
    with torch.no_grad():
        error = (program.module()(*args) - model(*args)).abs().max().item()
    row = {
        "layer_count": layers, "export_ms": export_ms, "decompose_ms": decompose_ms, "max_abs_error": error,
        "node_count": len(nodes), "normalized_count": len(graph["nodes"]), "decomposed_count": len(lowered_nodes),
        "groups": counted([item["pattern"] for item in result["groups"]]),
        "refused": counted([reason for item in result["refused"] for reason in item["reasons"]]),
        "decomposed_groups": counted([item["pattern"] for item in find_groups(lowered_nodes)[1]["groups"]]),
    }
    return row, graph, result, nodes


# %% slug="step-5-run" tags=["experiment"]
def run_capture(device):
    """每个层数导出一次，写一个文件。"""
    path = result_path(GPU_RESULT_PATH, device)
    check_label(path, RUN_LABEL)
    captured = [capture(layers, device) for layers in LAYER_COUNTS]
    _, graph, result, nodes = captured[0]
    same = nodes == BLOCK_NODES
    print("第一个模型的图与录好的", "逐个节点相同。" if same else "不同：层数或 torch 的版本不一样？")
    settings = {"layer_counts": LAYER_COUNTS, "token_count": TOKEN_COUNT, "hidden_size": HIDDEN_SIZE,
                "heads": HEADS, "inner_size": INNER_SIZE, "dtype": "float32"}
    save_report(path, {
        "schema_version": "graph-capture/v1", "semantic_id": "INF-GRAPH-CAPTURE", "profile_id": PROFILE_ID,
        "run_label": RUN_LABEL, "workload": settings, "hardware": describe_hardware(device),
        "environment": describe_environment(), "evidence_level": "graph_only", "same_as_recorded": same,
        "priority": PRIORITY, "rows": [row for row, *_ in captured], "graph": graph, **result,
    })


experiment_on = experiment_device(RUN_MODE, PROFILE_ID)
if experiment_on is None:
    print("dry_run：什么也没有导出。想真做，把 5.1 的 RUN_MODE 改成 'real_cpu' 或 'real_gpu'，再从 5.1 往下运行。")
else:
    try:
        run_capture(experiment_on)
    except NotImplementedError as todo:
        print(f"{todo}。这一步要用你自己的三个函数。")

# %% [markdown] slug="step-5-3"
# ### 5.3 读结果、画图（Read and plot）
#
# 下面几格只读文件，从不导出。图也只从保存好的 JSON 画。

# %% slug="exp-reader" include="assets/cells/exp_reader.py" tags=["reader"]

# %% slug="step-5-read" tags=["reader"]
def print_capture(report):
    """打印一份结果：每个层数一段。"""
    print(f"{report['hardware']['device']}，torch {report['hardware']['torch_version']}，{report['evidence_level']}")
    for row in report["rows"]:
        print(f"{row['layer_count']} 层：{row['node_count']} 个节点，归并后 {row['normalized_count']} 个，"
              f"分解后 {row['decomposed_count']} 个；导出 {row['export_ms']:.0f} ms，最大误差 {row['max_abs_error']:.1e}")
        for key in ("groups", "refused", "decomposed_groups"):
            print(f"    {key}: {row[key]}")


own_path = newest_result(GPU_RESULT_PATH)
own_report = load_report(own_path)
if own_report is None:
    print(f"还没有结果文件：{own_path}\n请先在 5.1 把 RUN_MODE 改成 'real_cpu' 或 'real_gpu'，再运行 5.2。")
else:
    print_capture(own_report)

# %% slug="plot-layout" tags=["plot"]
def place_nodes(nodes):
    """图的输入和权重不画。行 = 从输入算起的最长路径；列 = 尽量在输入的正下方 → {id: (列, 行)}。"""
    rows = {}
    for node in nodes:
        if node["role"] != "input":
            rows[node["id"]] = 1 + max((rows[name] for name in node["inputs"] if name in rows), default=-1)
    inputs, place = {node["id"]: node["inputs"] for node in nodes}, {}
    for row in range(max(rows.values(), default=-1) + 1):
        wish = {}
        for name in (name for name in rows if rows[name] == row):
            above = [place[other][0] for other in inputs[name] if other in place]
            wish[name] = sum(above) / len(above) if above else 0.0
        column, shift, line = None, 0.0, {}
        for name in sorted(wish, key=wish.get):
            column = wish[name] if column is None else max(column + 1, wish[name])
            line[name] = column
        shift = sum(line[name] - wish[name] for name in line) / len(line)
        place.update({name: (column - shift, row) for name, column in line.items()})
    return place


# %% slug="plot-function" tags=["plot"]
GROUP_COLORS = ["#E69F00", "#56B4E9", "#009E73", "#CC79A7", "#F0E442", "#BBBBBB", "#D55E00"]


def draw_edges(axis, nodes, place):
    """一条边画成直线；会穿过别的方框时，改从右侧绕行。"""
    for node in nodes:
        for name in (name for name in node["inputs"] if name in place and node["id"] in place):
            (x0, y0), (x1, y1) = place[name], place[node["id"]]
            hit = any(y0 < y < y1 and abs(x0 + (x1 - x0) * (y - y0) / (y1 - y0) - x) < 0.5 for x, y in place.values())
            start, end = ((x0 + 0.44, y0), (x1 + 0.44, y1)) if hit else ((x0, y0 + 0.3), (x1, y1 - 0.3))
            style = "arc3,rad=-0.55" if hit else "arc3"
            axis.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": "#444444", "lw": 1, "shrinkA": 0,
                                                      "shrinkB": 0, "connectionstyle": style})


def draw_graph(axis, graph, groups):
    """每个节点一个方框；同一组同一种颜色，框里写着组号。"""
    place = place_nodes(graph["nodes"])
    number_of = {name: number for number, item in enumerate(groups, 1) for name in item["nodes"]}
    draw_edges(axis, graph["nodes"], place)
    for node in graph["nodes"]:
        if node["id"] in place:
            number, (x, y) = number_of.get(node["id"], 0), place[node["id"]]
            color = GROUP_COLORS[(number - 1) % len(GROUP_COLORS)] if number else "white"
            axis.add_patch(plt.Rectangle((x - 0.44, y - 0.3), 0.88, 0.6, facecolor=color, edgecolor="black",
                                         linewidth=2 if number else 0.8, gid=node["id"]))
            text = f"{node['role']}  [{number}]" if number else node["role"]
            axis.text(x, y, text, ha="center", va="center", fontsize=8, color="black")
    columns, rows = zip(*place.values())
    axis.set(xlim=(min(columns) - 0.6, max(columns) + 1.4), ylim=(max(rows) + 0.6, -0.6))
    axis.axis("off")


# %% slug="plot-figure" tags=["plot"]
def plot_capture(report, note=""):
    """一份结果 → 图：左边是按组着色的图，右边是图例和被拒的匹配。"""
    height = max(6, 0.35 * sum(node["role"] != "input" for node in report["graph"]["nodes"]))
    figure, (axis, side) = plt.subplots(1, 2, figsize=(10.5, height), width_ratios=[2.6, 1], facecolor="white")
    draw_graph(axis, report["graph"], report["groups"])
    lines = ["Groups (chosen)"]
    for number, item in enumerate(report["groups"], 1):
        lines += [f"[{number}] {item['pattern']}", "     " + ", ".join(item["nodes"][:3]),
                  *(["     " + ", ".join(item["nodes"][3:])] if item["nodes"][3:] else [])]
    lines += ["", "Refused"]
    for item in report["refused"]:
        lines += [f"{item['pattern']}: {', '.join(item['nodes'])}", *(f"     {reason}" for reason in item["reasons"])]
    side.text(0, 0.98, "\n".join(lines), va="top", ha="left", fontsize=9, linespacing=1.5, transform=side.transAxes)
    side.axis("off")
    hardware = report["hardware"]
    figure.suptitle(f"{note}Fusion groups of {report['rows'][0]['layer_count']} decoder layer(s), "
                    f"torch {hardware['torch_version']}, {hardware['device']}", fontsize=11)
    figure.tight_layout()
    return figure


# %% [markdown] slug="step-5-plot-text"
# **怎么读图。** 从上到下是数据的去向；图的输入和权重没有画。白框不属于任何组。彩框里方括号中的数字是组号，颜色只是帮忙：黑白打印也认得出。会穿过方框的边从右侧绕行；下面最长的一条就是残差。
#
# 你还没有自己的结果时，画的是录好的样例。

# %% slug="sample-capture" sample="assets/samples/05_graph_capture_cpu.json" tags=["plot"]
# 录好的样例：一次真实的导出，一台 2 核 CPU。

# %% slug="plot-capture" tags=["plot"]
shown = load_report(newest_result(GPU_RESULT_PATH))
plot_capture(shown or RECORDED_SAMPLE, "" if shown else "Recorded sample. ")
plt.show()

# %% [markdown] slug="step-5-4"
# ### 5.4 解释（Interpret）
#
# 下面的数字来自样例：一台 2 核 CPU，torch 2.13。
#
# | | 1 层 | 2 层 |
# |---|---:|---:|
# | 导出的节点 | 51 | 98 |
# | 归并后的节点 | 38 | 73 |
# | 分解后的节点 | 119 | 234 |
# | `swiglu` | 1 | 2 |
# | `add_rms_norm` | 1 | 3 |
# | `rope` | 2 | 4 |
# | 分解后还找得到的组 | 2（都是 `rope`） | 4（都是 `rope`） |
#
# - **层数加倍，`add_rms_norm` 从 1 变成 3。** 第二层开头的 RMSNorm，前面正是第一层末尾的残差 add。跨层的融合，只看一层是看不见的。
# - **在哪一级找，决定找不找得到。** `run_decompositions()` 把算子拆成更小的核心算子<sup>[1]</sup>：`linear` 变成 `mm` 加 `permute`，`silu` 变成 `sigmoid` 加 `mul`，`rms_norm` 变成 `pow`、`mean`、`rsqrt` 等一串。我们的 `swiglu` 和 `add_rms_norm` 一个也不剩；`rope` 本来就由小算子组成，还在。真实的系统要么在分解之前匹配，要么按分解后的样子写模式。
# - **导出的时间只量了一次，不是性能数据。** 样例里第一次导出 2801 ms，第二次只要 386 ms：第一次包含了冷启动。
# - **`max_abs_error` 是 0.0**：导出的程序和 eager 算出同样的值。这说明图没有错，不说明融合没有错；融合还没有发生。
#
# | 说法 | 依据 |
# |---|---|
# | 节点数、组数、误差，三种写法的导出次序 | 在一台 2 核 CPU 上运行得到（torch 2.13） |
# | 录好的图与今天的导出相同 | 仓库里有一个测试重新导出，逐个节点比较 |
# | fx 分区器、Inductor、vLLM 的做法 | 读来的，见文末的出处 |
# | `real_gpu` | **没有运行过** |
#
# `evidence_level` 是 `graph_only`：这里只有图，没有 kernel，也没有计时。

# %% [markdown] slug="questions"
# ## 思考题（Questions to think on）
#
# 1. 贪心选组会错过什么？画一个例子：优先级最高的一个匹配，挡住了两个互不重叠的匹配。你会怎样决定值不值？
# 2. 归并丢掉了 `getitem` 的下标。举一个模式，会因此匹配到不该匹配的图。怎样改数据格式，才能既去掉噪声又不丢下标？
# 3. `add_rms_norm` 声明了两个输出。要是后面没有人用 `sum`，多写出的一个张量浪费了多少访存？该由谁来发现？
# 4. 图 3 右边的两个组各自都是凸的。只检查“凸”的系统会出什么事？什么时候才会被发现？
# 5. `aten.add_.Tensor` 会改写输入。export 交出的是函数式（functional）的图，为什么这对匹配很要紧？
# 6. 匹配是按角色找的，不看 dtype 和形状。哪些检查应当放在匹配里，哪些应当留给第 4 章的能力门？
#
# <details><summary>一点线索</summary>
#
# 1：要知道每个组省多少访存，还有后端有没有那个 kernel；个数不是收益。2：`[-second, first]` 和 `[-first, second]` 归并后一样；可以把下标记在边上。3：一个 $T\times H$；能看见用户数的一方，即选组的时候。4：排执行次序的时候，排不出来。5：改写会让“同一个值”在不同时刻不同，边就不再说明一切。6：结构归匹配，设备、dtype、长度归能力门。
#
# </details>

# %% [markdown] slug="mistakes"
# ## 常见误区（Common mistakes）
#
# - **“算子挨着，就能融合。”** 列表里的次序只是一种执行次序。相不相连，看边。
# - **“换个写法，融合就没了，那是模型的错。”** 交换律和执行次序不该影响匹配。写模式的人要么处理交换，要么两种都登记：vLLM 的 add + RMSNorm 就把 residual 在前、在后各登记了一次<sup>[6]</sup>。
# - **“中间结果融合后就不用写了。”** 只有没人看得见的才不用写。组外的用户、图的输出，都要写。
# - **“只要是凸的就合法。”** 还要和已经选出的组一起看。
# - **“优先级高的总能赢。”** 优先级只管次序，不管合法。
# - **“最长的模式优先。”** 第 4 章的教学约定而已。真实系统多用明确的次序；{{chapter:08_capstone|第 8 章}}有一张比较表。
# - **“分解得越细越好找。”** 细了以后，原来的大算子就不在了；要找大模式，就得在它还在的那一级找。
# - **“归并后的图可以拿去执行。”** 布局算子和下标都去掉了，它只用来找候选。
# - **“找到组，就是融合了。”** 找到的是候选。有没有 kernel，跑没跑，是后面的问题。

# %% [markdown] slug="summary-text"
# ## 收尾：总测试（Final check）
#
# 三组可见的测试一起再跑一遍。全部通过时打印一行 ✅。这一格不计分。

# %% 总测试 slug="summary" tags=["summary"] nbgrader={"grade": false, "grade_id": "summary", "locked": true, "schema_version": 3, "solution": false, "task": false}
def test_graph_capture():
    for one_check in (
        check_normalize_record, check_roles, check_rewire, check_inputs, check_outputs, check_block,
        check_chain, check_edges, check_branch, check_commutative, check_all_maps, check_distinct,
        check_one_group, check_priority, check_overlap, check_escape, check_live_output, check_cycle, check_reasons,
    ):
        one_check()
    print('✅ 三个 TODO 的可见测试全部通过：归并、匹配、选组都符合规则。')


test_graph_capture()

# %% [markdown] slug="links"
# ## 小结与链接（Summary and links）
#
# - 程序是图，不是列表。匹配看角色和边，不看邻居。
# - 匹配只说“像”；合法要看三件事：不重叠、不逃逸、不成环。
# - 拒绝要留下理由；优先级要写明，不靠长短。
#
# **下一步**：{{chapter:06_dynamic_shapes|第 6 章 动态形状}}。同一张图遇到不同的长度，会编译几次？{{chapter:08_capstone|第 8 章}}会用本章的三个函数做计划。
#
# **出处**
#
# 1. PyTorch，[torch.export API Reference](https://docs.pytorch.org/docs/stable/export/api_reference.html)：export 交出只含张量计算的图，算子是函数式的 ATen 算子；`run_decompositions` 再按分解表拆开。
# 2. PyTorch，[torch.export IR Specification](https://docs.pytorch.org/docs/stable/export.ir_spec.html)：图由节点组成；`placeholder`、`call_function`、`get_attr`、`output`。
# 3. PyTorch 源码，[torch/fx/passes/infra/partitioner.py](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/fx/passes/infra/partitioner.py)：合并分区前用 `dfs_iter_find_cycle` 检查环；默认的不含计算的算子是 `torch.ops.aten.view` 和 `_operator.getitem`。
# 4. PyTorch 源码，[torch/_inductor/pattern_matcher.py](https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_inductor/pattern_matcher.py)：在 FX 图上匹配由 `PatternExpr` 组成的 DAG；`_match_users`：模式的输出不限用户数，其余节点不符时以 `multiple_users` 失败。
# 5. vLLM，[add_rms_fusion](https://docs.vllm.ai/en/latest/api/vllm/compilation/passes/fusion/add_rms_fusion/)：`rms, residual_out = vllm.ir.ops.fused_add_rms_norm(input, residual, weight, epsilon)`，两个输出。
# 6. 同上：`AddRMSNormFusionPass` 对 `residual_first` 取 `True` 和 `False` 各登记一个模式。
