"""Wrong and right ways to solve chapter 3."""

from __future__ import annotations

from grader.tests.mutants.framework import Mutant, Rules

RULES = Rules(message_parts=("应得", "实得", "可能的原因"), form_cells=frozenset({"todo1_shape", "todo2_shape"}))

MAXIMUM = "torch.maximum(m, scores.max(dim=-1).values)"
BASE = "torch.where(m_new == NEG_INF, torch.zeros_like(m_new), m_new)"
UPDATE = "def online_softmax_update(m, l, acc, scores, values):\n"
TILED = "def tiled_attention(q, k, v, block, causal):\n"
IO = "def attention_io_bytes(n, d, sram_elems, elem_bytes):\n"


def patched(name: str, caught_by: str, what: str, *patch: tuple[str, str]) -> Mutant:
    """The reference with a few words changed."""
    return Mutant(name, caught_by, what, patch=patch)


def written(name: str, caught_by: str, what: str, source: str) -> Mutant:
    """A solution cell written anew; its first line says which TODO it is."""
    cell = {UPDATE: "todo1", TILED: "todo2", IO: "todo3"}[source[: source.index("\n") + 1]]
    return Mutant(name, caught_by, what, source=source, cell=cell)


UNTILED = (
    TILED
    + """\
    scores = q @ k.T / math.sqrt(q.shape[1])
    if causal:
        visible = torch.ones(scores.shape, dtype=torch.bool).tril(k.shape[0] - q.shape[0])
        scores = scores.masked_fill(~visible, NEG_INF)
    return torch.softmax(scores, dim=-1).nan_to_num(0.0) @ v
"""
)

FULL_ROWS = (
    TILED
    + """\
    out = torch.zeros(q.shape[0], v.shape[1], dtype=q.dtype)
    shift = k.shape[0] - q.shape[0]
    for i in range(q.shape[0]):
        stop = max(0, min(k.shape[0], i + shift + 1)) if causal else k.shape[0]
        if stop:
            weights = torch.softmax(q[i] @ k[:stop].T / math.sqrt(q.shape[1]), dim=-1)
            out[i] = weights @ v[:stop]
    return out
"""
)

NUMPY = (
    TILED
    + """\
    import numpy as np

    a, b, c = (x.numpy() for x in (q, k, v))
    scores = a @ b.T / math.sqrt(a.shape[1])
    if causal:
        scores = np.where(np.tri(*scores.shape, b.shape[0] - a.shape[0]) > 0, scores, -np.inf)
    top = scores.max(axis=1, keepdims=True)
    weights = np.exp(scores - np.where(np.isinf(top), 0, top))
    total = weights.sum(axis=1, keepdims=True)
    out = weights @ c / np.where(total == 0, 1, total)
    return torch.from_numpy(out.astype(a.dtype))
"""
)

SDPA = (
    TILED
    + """\
    import torch.nn.functional as F

    out = torch.zeros(q.shape[0], v.shape[1], dtype=q.dtype)
    shift = k.shape[0] - q.shape[0]
    for i in range(q.shape[0]):
        stop = max(0, min(k.shape[0], i + shift + 1)) if causal else k.shape[0]
        if stop:
            args = (x[None, None] for x in (q[i : i + 1], k[:stop], v[:stop]))
            out[i] = F.scaled_dot_product_attention(*args)[0, 0, 0]
    return out
"""
)

AVERAGED = (
    TILED
    + """\
    total, parts = 0, 0
    for j in range(0, k.shape[0], block):
        scores = q @ k[j : j + block].T / math.sqrt(q.shape[1])
        total = total + torch.softmax(scores, dim=-1) @ v[j : j + block]
        parts += 1
    return total / parts
"""
)

NO_MAXIMUM = (
    TILED
    + """\
    nq, nk = q.shape[0], k.shape[0]
    total, acc = torch.zeros(nq, dtype=q.dtype), torch.zeros(nq, v.shape[1], dtype=q.dtype)
    for j in range(0, nk, block):
        p = torch.exp(q @ k[j : j + block].T / math.sqrt(q.shape[1]))
        if causal:
            cols = torch.arange(j, j + p.shape[1])
            p = p * (cols[None, :] <= torch.arange(nq)[:, None] + nk - nq)
        total, acc = total + p.sum(dim=1), acc + p @ v[j : j + block]
    return acc / torch.where(total == 0, torch.ones_like(total), total)[:, None]
"""
)

MUTANTS = (
    # TODO 1
    patched("t1_l_keeps_old_base", "todo1_rescale", "l is not rescaled", ("alpha * l +", "l +")),
    patched("t1_acc_keeps_old_base", "todo1_rescale", "acc is not rescaled", ("alpha[:, None] * acc", "acc")),
    patched("t1_inverse_discount", "todo1_rescale", "exp(m' - m)", ("torch.exp(m - base)", "torch.exp(base - m)")),
    patched(
        "t1_discount_on_the_new_terms",
        "todo1_rescale",
        "alpha times old and new",
        ("alpha * l + p.sum(dim=-1)", "alpha * (l + p.sum(dim=-1))"),
    ),
    patched("t1_block_maximum", "todo1_running_max", "forgets the old maximum", (MAXIMUM, "scores.max(dim=-1).values")),
    patched("t1_no_maximum", "todo1_running_max", "subtracts nothing", (MAXIMUM, "torch.zeros_like(m)")),
    patched(
        "t1_first_maximum",
        "todo1_running_max",
        "keeps the first block's maximum",
        (MAXIMUM, "torch.where(m == NEG_INF, scores.max(dim=-1).values, m)"),
    ),
    patched("t1_clamped_maximum", "todo1_running_max", "maximum never below 0", (MAXIMUM, MAXIMUM + ".clamp_min(0.0)")),
    patched("t1_nan_in_masked_rows", "todo1_masked", "-inf minus -inf", (BASE, "m_new")),
    patched("t1_stores_the_safe_base", "todo1_masked", "m becomes 0", ("return m_new, l_new", "return base, l_new")),
    patched(
        "t1_guards_only_whole_blocks",
        "todo1_masked",
        "looks for a masked block, not for masked rows",
        (BASE, "torch.zeros_like(m_new) if bool((scores == NEG_INF).all()) else m_new"),
    ),
    patched(
        "t1_one_maximum_for_all_rows", "todo1_first", "max over the block", (MAXIMUM, "torch.maximum(m, scores.max())")
    ),
    patched(
        "t1_normalised_acc",
        "todo1_first",
        "divides by l too early",
        ("+ p @ values", "+ p @ values / p.sum(dim=-1, keepdim=True)"),
    ),
    patched("t1_power_of_two", "todo1_first", "exp2", ("p = torch.exp(scores", "p = torch.exp2(scores")),
    patched(
        "t1_softmax_in_the_block",
        "todo1_first",
        "softmax instead of exp",
        ("torch.exp(scores - base[:, None])", "torch.softmax(scores, dim=-1)"),
    ),
    patched(
        "t1_old_base_in_exponent",
        "todo1_running_max",
        "exp(s - m)",
        ("scores - base[:, None]", "scores - torch.where(m == NEG_INF, base, m)[:, None]"),
    ),
    patched(
        "t1_kept_dimension", "todo1_shape", "l is (Bq, 1)", ("p.sum(dim=-1)  # (Bq,)", "p.sum(dim=-1, keepdim=True)")
    ),
    written(
        "t1_in_place",
        "todo1_shape",
        "changes acc",
        UPDATE
        + """\
    m_new = torch.maximum(m, scores.max(dim=-1).values)
    base = torch.where(m_new == NEG_INF, torch.zeros_like(m_new), m_new)
    alpha, p = torch.exp(m - base), torch.exp(scores - base[:, None])
    l *= alpha
    l += p.sum(dim=-1)
    acc *= alpha[:, None]
    acc += p @ values
    return m_new, l, acc
""",
    ),
    # TODO 2
    patched("t2_no_scale", "todo2_scale", "no 1/sqrt(d)", (" / math.sqrt(d)", "")),
    patched("t2_scale_by_d", "todo2_scale", "1/d", ("/ math.sqrt(d)", "/ d")),
    patched("t2_scale_by_dv", "todo2_scale", "1/sqrt(dv)", ("math.sqrt(d)", "math.sqrt(dv)")),
    patched("t2_scale_by_block", "todo2_scale", "1/sqrt(block)", ("math.sqrt(d)", "math.sqrt(block)")),
    patched("t2_inverse_scale", "todo2_scale", "times sqrt(d)", ("/ math.sqrt(d)", "* math.sqrt(d)")),
    patched(
        "t2_never_divides",
        "todo2_scale",
        "returns acc",
        ("acc / torch.where(l == 0, torch.ones_like(l), l)[:, None]", "acc"),
    ),
    written("t2_mean_of_block_softmaxes", "todo2_scale", "averages the blocks", AVERAGED),
    patched(
        "t2_drops_last_keys",
        "todo2_ragged",
        "only whole key blocks",
        ("range(0, nk, block)", "range(0, max(1, nk - block + 1), block)"),
    ),
    patched(
        "t2_drops_last_queries",
        "todo2_ragged",
        "only whole query blocks",
        ("range(0, nq, block)", "range(0, max(1, nq - block + 1), block)"),
    ),
    patched(
        "t2_overlapping_last_block",
        "todo2_ragged",
        "moves the last key block back and counts keys twice",
        ("for j in range(0, nk, block):", "for j in (max(0, min(j, nk - block)) for j in range(0, nk, block)):"),
    ),
    patched(
        "t2_unmasked_padding",
        "todo2_ragged",
        "pads with zero keys that get weight",
        (
            "(nq, d), (nk, dv) = q.shape, v.shape",
            "(nq, d), (nk, dv) = q.shape, v.shape\n"
            "    pad = -nk % block\n"
            "    k, v = torch.cat([k, k.new_zeros(pad, d)]), torch.cat([v, v.new_zeros(pad, dv)])",
        ),
        ("range(0, nk, block)", "range(0, nk + pad, block)"),
    ),
    written("t2_untiled", "todo2_memory", "the whole score matrix", UNTILED),
    written("t2_whole_rows", "todo2_memory", "row by row, without key blocks", FULL_ROWS),
    written("t2_numpy_matrix", "todo2_memory", "the whole score matrix, in NumPy", NUMPY),
    written("t2_calls_sdpa", "todo2_memory", "PyTorch's own attention", SDPA),
    patched(
        "t2_whole_mask",
        "todo2_memory",
        "the whole mask, sliced per block",
        (
            "(nq, d), (nk, dv) = q.shape, v.shape",
            "(nq, d), (nk, dv) = q.shape, v.shape\n    whole = torch.ones(nq, nk, dtype=torch.bool).tril(nk - nq)",
        ),
        ("cols[None, :] <= rows[:, None] + (nk - nq)", "whole[i : i + block, j : j + block]"),
    ),
    patched(
        "t2_ignores_block",
        "todo2_memory",
        "one key block of any length",
        ("range(0, nk, block)", "(0,)"),
        ("k[j : j + block]", "k"),
        ("v[j : j + block]", "v"),
    ),
    written("t2_no_running_maximum", "todo2_large", "sums exp(s) as it is", NO_MAXIMUM),
    patched("t2_causal_excludes_itself", "todo2_causal", "j < i", ("cols[None, :] <= rows", "cols[None, :] < rows")),
    patched("t2_causal_sees_one_ahead", "todo2_causal", "j <= i + 1", ("+ (nk - nq)", "+ (nk - nq) + 1")),
    patched(
        "t2_local_rows",
        "todo2_causal",
        "row numbers inside the block",
        ("torch.arange(i, i + q_i.shape[0])", "torch.arange(q_i.shape[0])"),
    ),
    patched(
        "t2_local_columns",
        "todo2_causal",
        "column numbers inside the block",
        ("torch.arange(j, j + scores.shape[1])", "torch.arange(scores.shape[1])"),
    ),
    patched("t2_causal_ignored", "todo2_causal", "no mask", ("if causal:", "if False:")),
    patched("t2_mask_inverted", "todo2_causal", "hides the past", ("masked_fill(~visible", "masked_fill(visible")),
    patched(
        "t2_zero_instead_of_minus_inf",
        "todo2_causal",
        "hidden scores become 0",
        ("masked_fill(~visible, NEG_INF)", "masked_fill(~visible, 0.0)"),
    ),
    patched(
        "t2_upper_left", "todo2_rectangular", "j <= i whatever Nk - Nq", ("rows[:, None] + (nk - nq)", "rows[:, None]")
    ),
    patched("t2_shift_reversed", "todo2_rectangular", "Nq - Nk", ("+ (nk - nq)", "+ (nq - nk)")),
    patched(
        "t2_divides_by_zero",
        "todo2_rectangular",
        "nan in rows that see nothing",
        ("torch.where(l == 0, torch.ones_like(l), l)[:, None]", "l[:, None]"),
    ),
    patched(
        "t2_finite_mask",
        "todo2_rectangular",
        "-1e9: masked rows become a mean",
        ("masked_fill(~visible, NEG_INF)", "masked_fill(~visible, -1e9)"),
    ),
    patched(
        "t2_skips_too_much",
        "todo2_rectangular",
        "skips key blocks as if Nq = Nk",
        ("scores = q_i @ k", "if causal and j > i:\n                break\n            scores = q_i @ k"),
    ),
    patched(
        "t2_float32_output",
        "todo2_shape",
        "loses float64",
        ("out = torch.zeros(nq, dv, dtype=q.dtype)", "out = torch.zeros(nq, dv)"),
    ),
    patched(
        "t2_scales_in_place",
        "todo2_shape",
        "changes q",
        ("(nq, d), (nk, dv) = q.shape, v.shape", "(nq, d), (nk, dv) = q.shape, v.shape\n    q /= math.sqrt(d)"),
        (".T / math.sqrt(d)", ".T"),
    ),
    # TODO 3
    patched("t3_s_and_p_once", "todo3_standard", "2 N²", ("4 * n * n ", "2 * n * n ")),
    patched("t3_forgets_the_output", "todo3_standard", "3 N d", ("standard = 4 * n * d", "standard = 3 * n * d")),
    patched("t3_counts_elements", "todo3_standard", "no elem_bytes", ("standard * elem_bytes", "standard")),
    patched("t3_keys_once", "todo3_flash", "K and V read once", ("blocks * 2 * n * d", "2 * n * d")),
    patched(
        "t3_rereads_queries",
        "todo3_flash",
        "Q read for each block",
        ("2 * n * d + blocks * 2 * n * d", "n * d + blocks * 3 * n * d"),
    ),
    patched("t3_whole_sram_for_queries", "todo3_flash", "M // d", ("sram_elems // (4 * d)", "sram_elems // d")),
    patched(
        "t3_sram_in_bytes",
        "todo3_flash",
        "takes M for bytes",
        ("sram_elems // (4 * d)", "max(1, sram_elems // (4 * d * elem_bytes))"),
    ),
    patched(
        "t3_rows_at_most_d",
        "todo3_flash",
        "min(B, d) as for key blocks",
        ("sram_elems // (4 * d)", "min(d, sram_elems // (4 * d))"),
    ),
    patched("t3_real_blocks", "todo3_flash", "N / B", ("-(-n // rows)", "n / rows")),
    patched("t3_floor_of_blocks", "todo3_ceil", "N // B", ("-(-n // rows)", "n // rows")),
    patched("t3_float_ceil", "todo3_ceil", "math.ceil of a float", ("-(-n // rows)", "math.ceil(n / rows)")),
    patched("t3_one_block_too_many", "todo3_flash", "N // B + 1", ("-(-n // rows)", "n // rows + 1")),
    patched("t3_rows_rounded_up", "todo3_ceil", "ceil(M / 4d)", ("sram_elems // (4 * d)", "-(-sram_elems // (4 * d))")),
    patched("t3_no_limit", "todo3_limit", "no check", ("if sram_elems < 8 * d:", "if sram_elems < 4 * d and False:")),
    patched("t3_limit_of_one_row", "todo3_limit", "4 d", ("if sram_elems < 8 * d:", "if sram_elems < 4 * d:")),
    patched("t3_limit_excludes_8d", "todo3_limit", "<= 8 d", ("if sram_elems < 8 * d:", "if sram_elems <= 8 * d:")),
)

VARIANTS = (
    written(
        "v1_nan_to_num",
        "",
        "cleans the exponentials instead of the base",
        UPDATE
        + """\
    top = torch.max(m, scores.amax(-1))
    shrink = torch.exp(m - top).nan_to_num(0.0)
    weights = torch.exp(scores - top.unsqueeze(-1)).nan_to_num(0.0)
    return [top, l * shrink + weights.sum(-1), acc * shrink.unsqueeze(-1) + torch.matmul(weights, values)]
""",
    ),
    written(
        "v1_row_by_row",
        "",
        "loops over rows and keys",
        UPDATE
        + """\
    new_m, new_l, new_acc = m.clone(), l.clone(), acc.clone()
    for r in range(scores.shape[0]):
        for c in range(scores.shape[1]):
            s = scores[r, c].item()
            if s == NEG_INF:
                continue
            old = new_m[r].item()
            top = max(old, s)
            shrink = math.exp(old - top)
            new_l[r] = new_l[r] * shrink + math.exp(s - top)
            new_acc[r] = new_acc[r] * shrink + math.exp(s - top) * values[c]
            new_m[r] = top
    return new_m, new_l, new_acc
""",
    ),
    written(
        "v1_untouched_masked_rows",
        "",
        "computes only the rows that see something",
        UPDATE
        + """\
    rows = ~torch.isinf(torch.maximum(m, scores.amax(dim=1)))
    top, total, weighted = m.clone(), l.clone(), acc.clone()
    if rows.any():
        top[rows] = torch.maximum(m[rows], scores[rows].amax(dim=1))
        shrink = torch.exp(m[rows] - top[rows])
        e = torch.exp(scores[rows] - top[rows][:, None])
        total[rows] = shrink * l[rows] + e.sum(1)
        weighted[rows] = shrink[:, None] * acc[rows] + e @ values
    return top, total, weighted
""",
    ),
    written(
        "v2_keys_only",
        "",
        "tiles the keys, takes all queries at once",
        TILED
        + """\
    nq, nk = len(q), len(k)
    state = q.new_full((nq,), NEG_INF), q.new_zeros(nq), q.new_zeros(nq, v.shape[1])
    position = torch.arange(nq).unsqueeze(1) + nk - nq
    for keys, values, index in zip(k.split(block), v.split(block), torch.arange(nk).split(block)):
        s = torch.einsum("id,jd->ij", q, keys) * q.shape[1] ** -0.5
        if causal:
            s = torch.where(index <= position, s, torch.tensor(NEG_INF, dtype=q.dtype))
        state = online_softmax_update(*state, s, values)
    return (state[2] / state[1].unsqueeze(1)).nan_to_num(0.0)
""",
    ),
    written(
        "v2_one_query_at_a_time",
        "",
        "loops over queries, own update",
        TILED
        + """\
    nq, nk, scale = q.shape[0], k.shape[0], 1 / math.sqrt(q.shape[1])
    out = []
    for i in range(nq):
        last = min(nk, i + nk - nq + 1) if causal else nk
        top, total, weighted = NEG_INF, 0.0, torch.zeros(v.shape[1], dtype=q.dtype)
        for start in range(0, max(last, 0), block):
            stop = min(start + block, last)
            s = (k[start:stop] * q[i]).sum(dim=1) * scale
            new_top = max(top, s.max().item())
            e = torch.exp(s - new_top)
            shrink = math.exp(top - new_top)
            total, weighted, top = total * shrink + e.sum(), weighted * shrink + e @ v[start:stop], new_top
        out.append(weighted / total if last > 0 else weighted)
    return torch.stack(out)
""",
    ),
    written(
        "v2_skips_hidden_blocks",
        "",
        "scales q first, stops at the diagonal",
        TILED
        + """\
    (nq, d), (nk, dv) = q.shape, v.shape
    scaled, pieces = q * (1 / math.sqrt(d)), []
    for i in range(0, nq, block):
        rows = torch.arange(i, min(i + block, nq))
        m, l, acc = (torch.full((len(rows),), NEG_INF, dtype=q.dtype), torch.zeros(len(rows), dtype=q.dtype),
                     torch.zeros(len(rows), dv, dtype=q.dtype))
        for j in range(0, nk, block):
            if causal and j > rows[-1] + nk - nq:
                break
            s = scaled[i : i + block] @ k[j : j + block].T
            if causal:
                s = s.masked_fill(torch.arange(j, j + s.shape[1]) > rows[:, None] + nk - nq, NEG_INF)
            m, l, acc = online_softmax_update(m, l, acc, s, v[j : j + block])
        pieces.append(acc / l.masked_fill(l == 0, 1)[:, None])
    return torch.cat(pieces)
""",
    ),
    written(
        "v2_padded_keys",
        "",
        "pads the keys and hides the padding",
        TILED
        + """\
    (nq, d), (nk, dv) = q.shape, v.shape
    pad = -nk % block
    kp = torch.cat([k, torch.zeros(pad, d, dtype=k.dtype)]).view(-1, block, d)
    vp = torch.cat([v, torch.zeros(pad, dv, dtype=v.dtype)]).view(-1, block, dv)
    m, l, acc = q.new_full((nq,), NEG_INF), q.new_zeros(nq), q.new_zeros(nq, dv)
    for number in range(kp.shape[0]):
        cols = torch.arange(block) + number * block
        hidden = (cols >= nk).expand(nq, block)
        if causal:
            hidden = hidden | (cols[None] > torch.arange(nq)[:, None] + nk - nq)
        s = (q @ kp[number].T / d**0.5).masked_fill(hidden, NEG_INF)
        m, l, acc = online_softmax_update(m, l, acc, s, vp[number])
    return torch.where(l[:, None] > 0, acc / l[:, None].clamp_min(1e-30), torch.zeros_like(acc))
""",
    ),
    written(
        "v3_other_ceiling",
        "",
        "(n + b - 1) // b, other names",
        IO
        + """\
    minimum = 8 * d
    if not sram_elems >= minimum:
        raise ValueError("too small")
    query_rows = int(sram_elems) // 4 // d
    passes = (n + query_rows - 1) // query_rows
    answer = dict(flash=elem_bytes * n * d * (2 + 2 * passes))
    answer["standard"] = elem_bytes * 4 * n * (n + d)
    return answer
""",
    ),
    written(
        "v3_counts_by_loop",
        "",
        "adds up block by block",
        IO
        + """\
    if sram_elems < 8 * d:
        raise ValueError
    rows, extra = divmod(sram_elems, 4 * d)
    passes, rest = divmod(n, rows)
    reads = (passes + (rest > 0)) * 2 * n * d
    tables = n * n + 2 * n * n + n * n
    standard = 2 * n * d + tables + n * d + n * d
    return {"flash": (n * d + n * d + reads) * elem_bytes, "standard": standard * elem_bytes}
""",
    ),
)
