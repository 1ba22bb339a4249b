"""Wrong and equivalent solutions of chapter 5."""

from grader.tests.mutants.framework import Mutant, Rules

RULES = Rules(only_assertions=True)

# lines of the reference solutions
REWIRE = "inputs = [source.get(name, name) for name in node['inputs']]"
IS_INPUT = "if node['op'] in ('placeholder', 'get_attr'):"
IS_ATEN = "elif role.startswith('aten.'):"
NAME = "name = role.split('.')[1]"
LOOK_UP = "role = ROLES.get(name, name)"
OUTPUTS = "outputs = inputs"
IS_LAYOUT = "elif role in LAYOUT_ROLES:"
DROP = "source[node['name']] = inputs[0]"
KEEP = "kept.append({'id': node['name'], 'role': role, 'inputs': inputs})"

WANTED = "wanted = [(slot, mapping[source]) for source, target, slot in pattern['edges'] if target == key]"
SWAPS = "if node['role'] in COMMUTATIVE_ROLES:"
ORDERS = "orders = permutations(node['inputs'])"
HOLDS = "return any(all(order[slot:slot + 1] == (name,) for slot, name in wanted) for order in orders)"
CANDIDATES = (
    "candidates = [[node['id'] for node in graph['nodes'] if node['role'] == pattern['roles'][key]] for key in keys]"
)
ALL_MAPS = "for chosen in product(*candidates):"
LEGAL = "if len(set(chosen)) == len(keys) and all(edges_hold(key, mapping) for key in keys):"
FOUND = "maps.append(mapping)"

LISTED = "listed = priority.index(match['pattern']) if match['pattern'] in priority else len(priority)"
TURN = "return listed, min(position[name] for name in match['map'].values())"
EACH = "for match in sorted(matches, key=turn):"
MEMBERS = "members = sorted(match['map'].values(), key=position.get)"
UNLISTED = "if match['pattern'] not in priority:\n            reasons.append('not_in_priority')\n        elif any"
OVERLAP = "any(name in owner for name in members):"
VISIBLE = "visible = {name for node in graph['nodes'] if node['id'] not in members for name in node['inputs']}"
LIVE = "visible |= set(graph['outputs'])"
ESCAPES = "if (visible & set(members)) - {match['map'][key] for key in match['outputs']}:"
TRIAL = "trial = {**owner, **dict.fromkeys(members, len(groups))}"
CYCLE = "if has_cycle([(start, end) for start, end in edges if start != end]):"
REFUSE = "refused.append({**record, 'reasons': reasons})"
TAKE = "owner.update(dict.fromkeys(members, len(groups)))"
ADD = "groups.append(record)"


def change(name: str, caught_by: str, what: str, *patch: tuple[str, str]) -> Mutant:
    return Mutant(name, caught_by, what, patch=patch)


TODO_1 = (
    change("t1_key_name", "todo1_record", "keeps the raw key name", (KEEP, KEEP.replace("'id'", "'name'"))),
    change("t1_drops_inputs", "todo1_record", "leaves the graph's inputs out", (KEEP, f"role != 'input' and {KEEP}")),
    change("t1_keeps_output", "todo1_record", "output is a node too", (OUTPUTS, f"{OUTPUTS}\n            {KEEP}")),
    change(
        "t1_placeholder_by_name", "todo1_record", "an input's role is its target", (IS_INPUT, "if node['op'] == 'x':")
    ),
    change(
        "t1_whole_target",
        "todo1_record",
        "the role of an unlisted op is its target",
        (LOOK_UP, "role = ROLES.get(name, role)"),
    ),
    change("t1_none_for_unlisted", "todo1_record", "None for an unlisted op", (LOOK_UP, "role = ROLES.get(name)")),
    change("t1_no_table", "todo1_roles", "never looks the role up", (LOOK_UP, "role = name")),
    change("t1_overload_in_name", "todo1_record", "name with overload", (NAME, "name = role.split('.', 1)[1]")),
    change(
        "t1_only_tensor_overload",
        "todo1_roles",
        "looks up only the Tensor overload",
        (LOOK_UP, "role = ROLES.get(name, name) if role.endswith(('Tensor', 'default')) else name"),
    ),
    change(
        "t1_prefix",
        "todo1_roles",
        "a listed name that starts the op's name",
        (LOOK_UP, "role = next((ROLES[key] for key in ROLES if name.startswith(key)), name)"),
    ),
    change("t1_strips_underscore", "todo1_roles", "in-place taken for pure", (NAME, NAME + ".rstrip('_')")),
    change("t1_any_namespace", "todo1_roles", "looks any namespace up", (IS_ATEN, "elif role.count('.') == 2:")),
    change("t1_no_rewire", "todo1_rewire", "does not rewire", (REWIRE, "inputs = list(node['inputs'])")),
    change("t1_one_step", "todo1_rewire", "goes back one step", (DROP, "source[node['name']] = node['inputs'][0]")),
    change("t1_keeps_layout", "todo1_rewire", "drops nothing", (IS_LAYOUT, "elif role in ():")),
    change("t1_only_view", "todo1_rewire", "drops view only", (IS_LAYOUT, "elif role == 'view':")),
    change("t1_drops_chunk", "todo1_rewire", "drops chunk too", (IS_LAYOUT, "elif role in [*LAYOUT_ROLES, 'chunk']:")),
    change(
        "t1_keeps_getitem",
        "todo1_rewire",
        "getitem has no aten name",
        (IS_LAYOUT, IS_LAYOUT[:-1] + " and '.' not in role:"),
    ),
    change(
        "t1_one_user",
        "todo1_rewire",
        "rewires the first user only",
        (REWIRE, REWIRE.replace("source.get(", "source.pop(")),
    ),
    change(
        "t1_drops_with_inputs",
        "todo1_rewire",
        "drops the wire with the node",
        (REWIRE, "inputs = [n for n in node['inputs'] if n not in source]"),
    ),
    change(
        "t1_unique_inputs",
        "todo1_inputs",
        "each input once",
        (REWIRE, "inputs = list(dict.fromkeys(source.get(n, n) for n in node['inputs']))"),
    ),
    change(
        "t1_sorted_inputs",
        "todo1_inputs",
        "sorts the inputs",
        (REWIRE, "inputs = sorted(source.get(n, n) for n in node['inputs'])"),
    ),
    change("t1_raw_outputs", "todo1_outputs", "outputs are not rewired", (OUTPUTS, "outputs = list(node['inputs'])")),
    change("t1_one_output", "todo1_outputs", "first output only", (OUTPUTS, "outputs = inputs[:1]")),
    change(
        "t1_unique_outputs", "todo1_outputs", "each output once", (OUTPUTS, "outputs = list(dict.fromkeys(inputs))")
    ),
    change(
        "t1_last_input", "todo1_first_input", "a view of its last input", (DROP, "source[node['name']] = inputs[-1]")
    ),
    change(
        "t1_no_get_attr", "todo1_first_input", "get_attr is no input", (IS_INPUT, "if node['op'] == 'placeholder':")
    ),
    change(
        "t1_target_first",
        "todo1_first_input",
        "reads the target before op",
        (IS_INPUT, "if node['op'] in ('placeholder', 'get_attr') and '.' not in role:"),
    ),
    change(
        "t1_in_place",
        "todo1_random",
        "rewires the caller's nodes",
        (REWIRE, REWIRE + "\n        node['inputs'][:] = inputs"),
    ),
)

TODO_2 = (
    change(
        "t2_reversed_map",
        "todo2_chain",
        "maps ids to keys",
        (FOUND, "maps.append({i: key for key, i in mapping.items()})"),
    ),
    change("t2_ids_only", "todo2_chain", "lists of ids", (FOUND, "maps.append(list(chosen))")),
    change("t2_none", "todo2_chain", "None without a match", ("return maps", "return maps or None")),
    change(
        "t2_undirected",
        "todo2_chain",
        "edges in both directions",
        (HOLDS, "return all(n in node['inputs'] or node['id'] in by_id[n]['inputs'] for _, n in wanted)"),
    ),
    change("t2_no_roles", "todo2_chain", "any role", (CANDIDATES, "candidates = [list(by_id)] * len(keys)")),
    change("t2_no_edges", "todo2_edges", "roles only", (HOLDS, "return True")),
    change(
        "t2_neighbours",
        "todo2_edges",
        "neighbours in the list",
        (
            LEGAL,
            LEGAL[:-1] + " and max(map(list(by_id).index, chosen)) - min(map(list(by_id).index, chosen)) < len(keys):",
        ),
    ),
    change(
        "t2_reachable",
        "todo2_edges",
        "follows one more node",
        (
            HOLDS,
            "return all(n in node['inputs'] or any(n in by_id[i]['inputs'] "
            "for i in node['inputs']) for _, n in wanted)",
        ),
    ),
    change(
        "t2_one_user",
        "todo2_edges",
        "refuses what has other users",
        (LEGAL, LEGAL[:-1] + " and all(sum(i in n['inputs'] for n in graph['nodes']) < 2 for i in chosen):"),
    ),
    change(
        "t2_list_order",
        "todo2_branch",
        "keys in the order of the list",
        (LEGAL, LEGAL[:-1] + " and sorted(chosen, key=list(by_id).index) == list(chosen):"),
    ),
    change("t2_never_swaps", "todo2_branch", "no commutative inputs", (SWAPS, "if False:")),
    change("t2_multiply_only", "todo2_commutative", "add does not swap", (SWAPS, "if node['role'] == 'multiply':")),
    change("t2_always_swaps", "todo2_commutative", "everything swaps", (SWAPS, "if True:")),
    change(
        "t2_is_input",
        "todo2_commutative",
        "slot is ignored",
        (HOLDS, "return all(name in node['inputs'] for _, name in wanted)"),
    ),
    change(
        "t2_reversed_only",
        "todo2_commutative",
        "only the swapped order",
        (ORDERS, "orders = [tuple(reversed(node['inputs']))]"),
    ),
    change(
        "t2_first_only",
        "todo2_all_maps",
        "stops at the first",
        (ALL_MAPS, ALL_MAPS + "\n        if maps:\n            break"),
    ),
    change(
        "t2_no_sharing",
        "todo2_all_maps",
        "each node in one map",
        (LEGAL, LEGAL[:-1] + " and not any(i in m.values() for m in maps for i in chosen):"),
    ),
    change(
        "t2_sorted_keys",
        "todo2_all_maps",
        "keys by name",
        ("keys = list(pattern['roles'])", "keys = sorted(pattern['roles'])"),
    ),
    change("t2_reversed_order", "todo2_all_maps", "last first", ("return maps", "return maps[::-1]")),
    change(
        "t2_once_per_set",
        "todo2_all_maps",
        "one map per set of nodes",
        (LEGAL, LEGAL[:-1] + " and set(chosen) not in [set(m.values()) for m in maps]:"),
    ),
    change(
        "t2_same_node",
        "todo2_distinct",
        "two keys, one node",
        (LEGAL, LEGAL.replace("len(set(chosen)) == len(keys)", "True")),
    ),
    change(
        "t2_edge_by_edge",
        "todo2_distinct",
        "each edge with its own order",
        (
            HOLDS,
            "orders = list(orders)\n        return all(any(order[slot:slot + 1] == (name,) "
            "for order in orders) for slot, name in wanted)",
        ),
    ),
    change(
        "t2_commutative_is_input",
        "todo2_distinct",
        "no slots for commutative roles",
        (
            SWAPS,
            "if node['role'] in COMMUTATIVE_ROLES:\n            "
            "return all(name in node['inputs'] for _, name in wanted)\n        if False:",
        ),
    ),
    change(
        "t2_index_error",
        "todo2_slots",
        "slot out of range",
        (HOLDS, "return any(all(order[slot] == name for slot, name in wanted) for order in orders)"),
    ),
    change(
        "t2_wraps",
        "todo2_slots",
        "slot modulo the inputs",
        (HOLDS, "return any(all(order[slot % len(order)] == name for slot, name in wanted) for order in orders)"),
    ),
    change(
        "t2_consumes_pattern",
        "todo2_random",
        "changes the pattern",
        (CANDIDATES, "pattern['edges'].sort()\n    " + CANDIDATES),
    ),
)

TODO_3 = (
    change(
        "t3_map_order",
        "todo3_group",
        "members in the order of the map",
        (MEMBERS, "members = list(match['map'].values())"),
    ),
    change(
        "t3_keeps_map", "todo3_group", "the map instead of the nodes", ("'nodes': members}", "'nodes': match['map']}")
    ),
    change("t3_self_edges", "todo3_group", "edges inside the group count", (CYCLE, "if has_cycle(edges):")),
    change(
        "t3_empty_reasons",
        "todo3_group",
        "reasons on accepted groups",
        (ADD, "groups.append({**record, 'reasons': reasons})"),
    ),
    change("t3_given_order", "todo3_priority", "order of matches", (EACH, "for match in matches:")),
    change(
        "t3_longest_first",
        "todo3_priority",
        "longest first",
        (TURN, "return -len(match['map']), listed, min(position[name] for name in match['map'].values())"),
    ),
    change(
        "t3_position_first",
        "todo3_priority",
        "position before the list",
        (TURN, "return min(position[name] for name in match['map'].values()), listed"),
    ),
    change("t3_last_node", "todo3_priority", "by the last node", (TURN, TURN.replace("min(", "-max("))),
    change("t3_no_position", "todo3_priority", "ties by matches", (TURN, "return listed")),
    change(
        "t3_reversed_priority", "todo3_priority", "last of the list first", (TURN, TURN.replace("listed,", "-listed,"))
    ),
    change(
        "t3_graph_order_of_groups",
        "todo3_priority",
        "groups by position",
        (
            "return {'groups': groups,",
            "groups.sort(key=lambda g: position[g['nodes'][0]])\n    return {'groups': groups,",
        ),
    ),
    change(
        "t3_refused_occupies",
        "todo3_overlap",
        "a refused match keeps its nodes",
        (REFUSE, REFUSE + "\n            owner.update(dict.fromkeys(members, -len(refused)))"),
    ),
    change("t3_overlap_allowed", "todo3_overlap", "groups may share nodes", (OVERLAP, "False:")),
    change(
        "t3_overlap_of_all",
        "todo3_overlap",
        "a subset is no overlap",
        (OVERLAP, "all(name in owner for name in members):"),
    ),
    change(
        "t3_silent", "todo3_overlap", "drops the overlapping silently", (REFUSE, "reasons != ['overlap'] and " + REFUSE)
    ),
    change("t3_no_escape", "todo3_escape", "never escapes", (ESCAPES, "if False:")),
    change(
        "t3_last_may_escape",
        "todo3_escape",
        "the last node may always escape",
        (ESCAPES, "if visible & set(members[:-1]) - {match['map'][key] for key in match['outputs']}:"),
    ),
    change(
        "t3_no_outputs", "todo3_escape", "declared outputs are ignored", (ESCAPES, "if visible & set(members[:-1]):")
    ),
    change(
        "t3_inside_users",
        "todo3_group",
        "users inside count",
        (VISIBLE, VISIBLE.replace("if node['id'] not in members ", "")),
    ),
    change(
        "t3_unused_output",
        "todo3_escape",
        "a declared output must be used",
        (ESCAPES, "if (visible & set(members)) ^ {match['map'][key] for key in match['outputs']}:"),
    ),
    change("t3_no_live_outputs", "todo3_live_output", "outputs of the graph don't count", (LIVE, "")),
    change(
        "t3_live_last_only",
        "todo3_live_output",
        "only the first output counts",
        (LIVE, "visible |= set(graph['outputs'][:1])"),
    ),
    change("t3_no_cycle", "todo3_cycle", "no cycle check", (CYCLE, "if False:")),
    change(
        "t3_outside_input",
        "todo3_cycle",
        "any node between is a cycle",
        (CYCLE, "if members != list(position)[position[members[0]]:position[members[-1]] + 1]:"),
    ),
    change("t3_original_graph", "todo3_cycle", "looks for a cycle without contraction", (TRIAL, "trial = dict(owner)")),
    change(
        "t3_first_reason",
        "todo3_reasons",
        "stops at the first reason",
        ("if has_cycle(", "if not reasons and has_cycle("),
    ),
    change(
        "t3_reasons_swapped",
        "todo3_reasons",
        "order of reasons",
        (REFUSE, "refused.append({**record, 'reasons': sorted(reasons, reverse=True)})"),
    ),
    change("t3_unlisted_last", "todo3_reasons", "an unlisted pattern is merely last", (UNLISTED, "if any")),
    change(
        "t3_unlisted_error",
        "todo3_reasons",
        "an unlisted pattern raises",
        (LISTED, "listed = priority.index(match['pattern'])"),
    ),
    change(
        "t3_unlisted_silent",
        "todo3_reasons",
        "an unlisted pattern vanishes",
        (REFUSE, "match['pattern'] in priority and " + REFUSE),
    ),
    change(
        "t3_convex_only", "todo3_two_groups", "looks at this group alone", (TRIAL, "trial = dict.fromkeys(members, 0)")
    ),
    change(
        "t3_sorts_matches",
        "todo3_random",
        "sorts the caller's list",
        (EACH, "matches.sort(key=turn)\n    for match in matches:"),
    ),
)

MUTANTS = TODO_1 + TODO_2 + TODO_3

RECURSIVE_NORMALIZE = """\
def normalize_graph(nodes):
    by_name = {n['name']: n for n in nodes}

    def role(n):
        if n['op'] != 'call_function':
            return 'input'
        space, _, rest = n['target'].partition('.')
        base = rest.rpartition('.')[0]
        return n['target'] if space != 'aten' else (ROLES[base] if base in ROLES else base)

    def origin(name):
        n = by_name[name]
        return origin(n['inputs'][0]) if role(n) in LAYOUT_ROLES else name

    result = {'outputs': [], 'nodes': []}
    for n in nodes:
        if n['op'] == 'output':
            result['outputs'] = list(map(origin, n['inputs']))
        elif role(n) not in LAYOUT_ROLES:
            result['nodes'].append({'inputs': list(map(origin, n['inputs'])), 'role': role(n), 'id': n['name']})
    return result
"""

BACKTRACKING = """\
def match_dag(graph, pattern):
    from collections import Counter
    nodes = {n['id']: n for n in graph['nodes']}
    keys, found = list(pattern['roles']), []

    def ok(m):
        for key in m:
            node = nodes[m[key]]
            edges = [(m[s], k) for s, t, k in pattern['edges'] if t == key and s in m]
            if node['role'] not in COMMUTATIVE_ROLES:
                if any(k >= len(node['inputs']) or node['inputs'][k] != s for s, k in edges):
                    return False
            else:
                slots = {}
                for s, k in edges:
                    if k >= len(node['inputs']) or slots.setdefault(k, s) != s:
                        return False
                need, have = Counter(slots.values()), Counter(node['inputs'])
                if any(have[s] < need[s] for s in need):
                    return False
        return True

    def extend(m):
        if len(m) == len(keys):
            found.append(dict(m))
            return
        key = keys[len(m)]
        for node in graph['nodes']:
            if node['role'] == pattern['roles'][key] and node['id'] not in m.values():
                m[key] = node['id']
                if ok(m):
                    extend(m)
                del m[key]

    extend({})
    return found
"""

BY_REACHABILITY = """\
def select_groups(graph, matches, priority):
    ids = [n['id'] for n in graph['nodes']]
    inputs = {n['id']: n['inputs'] for n in graph['nodes']}
    rank = {name: i for i, name in enumerate(priority)}
    todo = list(enumerate(matches))
    todo.sort(key=lambda p: (rank.get(p[1]['pattern'], len(rank)), min(map(ids.index, p[1]['map'].values())), p[0]))
    accepted, refused = [], []

    def runs(sets):
        units = [set(s) for s in sets] + [{i} for i in ids if not any(i in s for s in sets)]
        done = set()
        progress = True
        while progress:
            progress = False
            for unit in units:
                if not unit <= done and all(set(inputs[i]) <= done | unit for i in unit):
                    done |= unit
                    progress = True
        return len(done) == len(ids)

    for _, m in todo:
        own = [i for i in ids if i in m['map'].values()]
        why = []
        if m['pattern'] not in rank:
            why = ['not_in_priority']
        elif {i for g in accepted for i in g['nodes']} & set(own):
            why = ['overlap']
        else:
            ok = [m['map'][k] for k in m['outputs']]
            for i in own:
                seen = i in graph['outputs'] or any(i in inputs[j] for j in ids if j not in own)
                if seen and i not in ok and not why:
                    why.append('escaping_intermediate')
            if not runs([g['nodes'] for g in accepted] + [own]):
                why.append('would_create_cycle')
        entry = dict(pattern=m['pattern'], nodes=own)
        if why:
            entry['reasons'] = why
            refused.append(entry)
        else:
            accepted.append(entry)
    return dict(refused=refused, groups=accepted)
"""

VARIANTS = (
    Mutant("v1_recursive", "", "resolves each name on demand", source=RECURSIVE_NORMALIZE, cell="todo1"),
    change(
        "v1_loop",
        "",
        "a plain loop",
        (
            REWIRE,
            "inputs = []\n        for name in node['inputs']:\n            "
            "inputs.append(source[name] if name in source else name)",
        ),
    ),
    change(
        "v1_tuple_test",
        "",
        "op tested by ==",
        (IS_INPUT, "if node['op'] == 'placeholder' or node['op'] == 'get_attr':"),
    ),
    Mutant("v2_backtracking", "", "key by key, multisets instead of permutations", source=BACKTRACKING, cell="todo2"),
    change(
        "v2_lists",
        "",
        "compares lists",
        (HOLDS, "return any(all(list(order[slot:slot + 1]) == [name] for slot, name in wanted) for order in orders)"),
    ),
    Mutant("v3_by_running", "", "runs the units instead of looking for a cycle", source=BY_REACHABILITY, cell="todo3"),
    change(
        "v3_graph_order",
        "",
        "members by a scan of the graph",
        (MEMBERS, "members = [name for name in position if name in match['map'].values()]"),
    ),
)
