"""The rows of `eddy bench speed`, read from the files that Eddy reads: speed.toml and the presets of the families."""
import pathlib

try:
    import tomllib
except ImportError:  # before Python 3.11
    from pip._vendor import tomli as tomllib

TREE = pathlib.Path(__file__).resolve().parents[2]

# Defaults of the keys that the rows' models read; a 0 stands for what `completed` fills in.
DEFAULTS = dict(
    family="recurrent_transformer", model="unit_forget", vocab=0, context=256, dim=384, layers=1, heads=6, head_dim=0,
    mlp_dim=0, norm_eps=0, tied=True, segment=0, window=0, chunk=32, block=1, positions=False, bias=False,
    activation="gelu", readout="all", accumulate_factor=0.5, recurrent_layers=[], states=512, rel_buckets=32,
    rel_max_distance=128, qk_eps=1e-6, logit_divisor="sqrt_d", steps=2, span=0, rope_theta=10000.0)


def read_toml(path):
    with open(TREE / path, "rb") as file:
        return tomllib.load(file)


def presets():
    """Each preset's keys, those of its base included."""
    given = {}
    for path in sorted(TREE.glob("models/*/presets.toml")):
        for preset in read_toml(path.relative_to(TREE))["preset"]:
            given[preset["name"]] = preset

    def keys(name):
        own = {k: v for k, v in given[name].items() if k not in ("name", "base", "parameters")}
        return {**(keys(given[name]["base"]) if "base" in given[name] else {}), **own}

    return {name: keys(name) for name in given}


def completed(given):
    """The configuration with what follows from other keys, as Eddy's fill functions have it."""
    c = {**DEFAULTS, **given}
    c["head_dim"] = c["head_dim"] or c["dim"] // c["heads"]
    if not c["mlp_dim"]:
        third = 8 * c["dim"] // 3
        c["mlp_dim"] = (third + 31) // 32 * 32 if c["family"] == "blockwise_recurrent" else 4 * c["dim"]
    c["norm_eps"] = c["norm_eps"] or (1e-6 if c["family"] == "block_recurrent" else 1e-5)
    c["segment"] = c["segment"] or c["context"]
    c["window"] = c["window"] or c["segment"]
    c["span"] = c["span"] or c["steps"] * c["chunk"]
    return c


def shrunk(given):
    """A model of the same kind whose step takes milliseconds on a CPU; every recurrence keeps several blocks."""
    c = {**given, "dim": 32, "heads": 2, "head_dim": 0, "vocab": min(given["vocab"], 64), "context": 64, "chunk": 16,
         "span": 0, "states": 16, "layers": min(given.get("layers", 1), 2)}
    c["mlp_dim"] = 64 if given.get("mlp_dim") else 0
    c["segment"] = 64 if given.get("segment") else 0
    c["window"] = 16 if given.get("window") else 0
    c["block"] = 1 if given.get("block", 1) == 1 else 16
    if c.get("model") == "xl":
        c["window"] = 64
    if c.get("model") == "block_recurrent":
        c["recurrent_layers"] = [c["layers"] - 1]
    return c


def speed_rows(small):
    """Each row: name, title, the model as given and completed, batch, sequence, and how many last positions count."""
    known = presets()
    rows = []
    for row in read_toml("train/app/measure/speed.toml")["row"]:
        given = dict(known[row["preset"]]) if "preset" in row else dict(row["model"])
        given = {k: v for k, v in given.items() if "dropout" not in k}
        batch, sequence = row["batch"], row["sequence"]
        if small:
            given, batch, sequence = shrunk(given), 2, 64
            row = {**row, "title": f"{row['name']}, shrunk to 2 x 64"}
        rows.append(dict(name=row["name"], title=row["title"], given=given, config=completed(given), batch=batch,
                         sequence=sequence, scored=16 if given.get("readout") == "tail" else sequence))
    return rows
