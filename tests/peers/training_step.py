#!/usr/bin/env python3
"""Training steps of the rows of `eddy bench speed` by PyTorch: forward, loss, backward, clipping and AdamW on random
tokens, in bf16 by autocast with parameters in f32, the state carried from step to step; on a GPU, or at --scale small on
the CPU.

    training_step.py --device cuda --compile --budget 220 --beside result.json --json gpu-peers.json

A row is timed in several forms, and the fastest counts: eager; with --compile its parts by torch.compile, and those
within one CUDA graph of the whole step. Models with a window also take FlexAttention. Each form prints a line of JSON,
and --json is written after each, so that a run that is cut off leaves what it has; rows that an earlier call measured on
such a machine stay in it. --beside reads the result.json of
`eddy bench speed` and adds how many times as long PyTorch takes: a ratio of one run where both ran on the same machine
one after the other.

    training_step.py --check build/release/eddy

compares each model, shrunk, with Eddy's by `eddy dump` in f64: the number of parameters, the loss, and every gradient.
"""
import argparse
import contextlib
import datetime
import gc
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

import torch

import peer_block_recurrent
import peer_memory_llama
import peer_recurrent_transformer
import peer_rows
import peer_staircase

FAMILIES = {"block_recurrent": peer_block_recurrent, "blockwise_recurrent": peer_memory_llama,
            "recurrent_transformer": peer_recurrent_transformer, "staircase": peer_staircase}
COLUMNS = ["row", "Eddy, ms", "PyTorch eager, ms", "PyTorch at its best, ms", "by", "peak, GiB", "times Eddy's"]
BEGAN = time.monotonic()


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="", help="names, separated by commas (default: all)")
    parser.add_argument("--scale", choices=["paper", "small"], default="paper", help="small: shrunk for a CPU")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--precision", choices=["bf16", "tf32", "f32"], help="default: bf16, on a CPU f32")
    parser.add_argument("--compile", action="store_true", help="also compiled, and on a GPU captured into a graph")
    parser.add_argument("--budget", type=float, default=600, help="seconds of all: no form begins after them")
    parser.add_argument("--steps", type=int, default=8, help="timed steps of a form")
    parser.add_argument("--beside", help="result.json of `eddy bench speed` on this machine")
    parser.add_argument("--json", help="file of the table, as docs/measured/ has it, and of every form")
    parser.add_argument("--check", metavar="EDDY", help="compare with this program instead")
    options = parser.parse_args()
    options.precision = options.precision or ("bf16" if options.device == "cuda" else "f32")
    return options


def make_peer(row):
    return FAMILIES[row["config"]["family"]].make(row["config"])


def parameters_of(model):
    return sum(p.numel() for p in model.parameters())


# ---------------------------------------------------------------------------------------------------------------- times


def compile_parts(model):
    """Compiles a model's parts, each for the shapes that it meets."""
    limit = "recompile_limit" if hasattr(torch._dynamo.config, "recompile_limit") else "cache_size_limit"
    setattr(torch._dynamo.config, limit, 64)
    modules, methods = model.compiled_parts()
    for module in modules:
        module.compile(dynamic=False)
    for path in methods:
        *parents, name = path.split(".")
        owner = model.get_submodule(".".join(parents))
        setattr(owner, name, torch.compile(getattr(owner, name), dynamic=False))


class Step:
    """One step of training after another, on the same tokens: the time does not depend on them."""

    def __init__(self, row, options, form):
        torch._dynamo.reset()
        torch.set_float32_matmul_precision("highest" if options.precision == "f32" else "high")
        self.device, self.captures = options.device, "graph" in form
        self.model = make_peer(row).start().to(self.device)
        if hasattr(self.model, "choose_attention"):
            self.model.choose_attention("flex" if "flex" in form else "sdpa", "compiled" in form)
        if "compiled" in form:
            compile_parts(self.model)
        on_gpu = {"fused": True, "capturable": True} if self.device == "cuda" else {}
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, **on_gpu)
        vocab, batch = row["config"]["vocab"], row["batch"]
        self.tokens = torch.randint(vocab, (batch, row["sequence"]), device=self.device)
        self.targets = torch.randint(vocab, (batch, row["scored"]), device=self.device)
        with torch.no_grad():
            self.state = self.model.initial_state(batch)
        self.half = options.precision == "bf16"

    def __call__(self):
        with torch.autocast(self.device, dtype=torch.bfloat16) if self.half else contextlib.nullcontext():
            loss, state = self.model(self.tokens, self.targets, self.state)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        # A graph reads the state and adds gradients where it was captured.
        self.optimizer.zero_grad(set_to_none=not self.captures)
        if self.captures and self.state:
            for before, now in zip(self.state, state):
                before.copy_(now)
        else:
            self.state = state
        return loss


def captured(step):
    """The step as one CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def milliseconds(step, options):
    times = []
    for _ in range(options.steps):
        if options.device == "cuda":
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            step()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end))
        else:
            start = time.perf_counter()
            step()
            times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times), min(times)


def forms_of(row, options):
    has_window = row["config"]["family"] == "block_recurrent"
    forms = ["eager"]
    if options.compile:
        forms += ["compiled"] + (["compiled, flex"] if has_window else [])
        if options.device == "cuda":
            forms += ["compiled, graph"] + (["compiled, flex, graph"] if has_window else [])
    return forms


def time_form(row, options, form):
    result = {"row": row["name"], "form": form, "batch": row["batch"], "sequence": row["sequence"]}
    try:
        if options.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        began = time.monotonic()
        step = Step(row, options, form)
        result["parameters"] = parameters_of(step.model)
        for _ in range(2):
            loss = step()
        # The state of a model without one at first has it now.
        result["loss"] = loss.item()
        run = captured(step) if step.captures else step
        run()
        result["first_seconds"] = round(time.monotonic() - began, 1)
        median, best = milliseconds(run, options)
        result |= {"ms": round(median, 3), "best_ms": round(best, 3),
                   "tokens_per_second": round(1e3 * row["batch"] * row["sequence"] / median)}
        if options.device == "cuda":
            result["peak_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
    except Exception as error:  # a form that fails leaves the others
        result["failure"] = f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}"
    step = run = None
    gc.collect()
    if options.device == "cuda":
        torch.cuda.empty_cache()
    return result


# ---------------------------------------------------------------------------------------------------------------- table


def eddy_times(path):
    """The milliseconds of Eddy's rows, by name."""
    if not path:
        return {}
    rows = json.loads(pathlib.Path(path).read_text())["rows"]
    return {row["name"]: row["measured"]["step_ms"]["median"] for row in rows if row["measured"]}


def shown(value):
    return "" if value is None else f"{value:.4g}"


def machine_of(options):
    where = torch.cuda.get_device_name() if options.device == "cuda" else "a CPU"
    return f"{where}, {options.precision}, PyTorch {torch.__version__}"


def earlier_forms(options, wanted):
    """The forms of other rows that an earlier call on such a machine left in --json."""
    path = pathlib.Path(options.json or "")
    if not path.is_file():
        return []
    whole = json.loads(path.read_text())
    if whole["measured"][0]["machine"] != machine_of(options):
        sys.exit(f"training_step.py: {path} was measured elsewhere: {whole['measured'][0]['machine']} "
                 "(name another file, or remove it)")
    return [form for form in whole["forms"] if form["row"] not in wanted]


def table_of(results, rows, options, beside):
    lines, names = [], []
    for row in rows:
        mine = [r for r in results if r["row"] == row["name"] and "ms" in r]
        if not mine:
            continue
        eager = next((r["ms"] for r in mine if r["form"] == "eager"), None)
        best = min(mine, key=lambda r: r["ms"])
        late = [r["form"] for r in results if r["row"] == row["name"] and r.get("not_begun")]
        by = best["form"] + (f" (not begun: {', '.join(late)})" if late else "")
        own = beside.get(row["name"])
        lines.append([row["title"], shown(own), shown(eager), shown(best["ms"]), by,
                      shown(best.get("peak_gib")), shown(best["ms"] / own if own else None)])
        names.append(row["name"])
    return {"machine": machine_of(options), "rows_are": names,
            "date": datetime.date.today().isoformat(),
            "command": " ".join(["tests/peers/training_step.py", *sys.argv[1:]]),
            "unchecked": "a program of PyTorch, which has no dry form", "columns": COLUMNS, "rows": lines}


def time_rows(options):
    known = peer_rows.speed_rows(options.scale == "small")
    wanted = options.rows.split(",") if options.rows else [row["name"] for row in known]
    unknown = sorted(set(wanted) - {row["name"] for row in known})
    if unknown:
        sys.exit(f"training_step.py: no such rows: {', '.join(unknown)} (all: {', '.join(r['name'] for r in known)})")
    results, beside = earlier_forms(options, wanted), eddy_times(options.beside)
    todo = [(row, form) for row in known if row["name"] in wanted for form in forms_of(row, options)]
    for row, form in todo:
        if time.monotonic() - BEGAN > options.budget:
            result = {"row": row["name"], "form": form, "not_begun": True,
                      "failure": f"not begun within {options.budget:g} seconds"}
        else:
            result = time_form(row, options, form)
        results.append(result)
        print(json.dumps(result), flush=True)
        if options.json:
            whole = {"measured": [table_of(results, known, options, beside)], "forms": results}
            pathlib.Path(options.json).write_text(json.dumps(whole, indent=1) + "\n")
    return 0 if any("ms" in result for result in results if result["row"] in wanted) else 1


# ---------------------------------------------------------------------------------------------------------------- check

KINDS = {torch.float64: "F64", torch.int32: "I32"}


def write_safetensors(path, tensors):
    header, parts, at = {}, [], 0
    for name, tensor in tensors.items():
        part = bytes(tensor.detach().contiguous().view(torch.uint8).flatten().tolist())
        header[name] = {"dtype": KINDS[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [at, at + len(part)]}
        parts.append(part)
        at += len(part)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(parts))


def read_safetensors(path):
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + size]), content[8 + size :]
    tensors = {}
    for name, about in header.items():
        if name == "__metadata__" or about["dtype"] != "F64":
            continue
        begin, end = about["data_offsets"]
        values = torch.frombuffer(bytearray(data[begin:end]), dtype=torch.float64) if end > begin else torch.empty(0)
        tensors[name] = values.view(about["shape"])
    return tensors


def compare(row, program, folder, attention):
    """Returns the largest differences of loss and gradients of two steps, relative to the largest gradient of each.

    FlexAttention has no gradients on a CPU: of it the loss alone is compared.
    """
    warnings.filterwarnings("ignore", message="flex_attention called without")  # it is only compared
    model = make_peer(row).start().double()
    if attention:
        model.choose_attention(attention, False)
    torch.manual_seed(2)
    vocab = row["config"]["vocab"]
    given = {"weights": {name: p for name, p in model.named_parameters()}}
    for step in range(2):
        given[step] = {"tokens": torch.randint(vocab, (row["batch"], row["sequence"]), dtype=torch.int32),
                       "targets": torch.randint(vocab, (row["batch"], row["scored"]), dtype=torch.int32)}
    for name, tensors in given.items():
        write_safetensors(folder / f"{name}.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps({"model": row["given"]}))
    state, worst = model.initial_state(row["batch"]), 0.0
    for step in range(2):
        out = folder / f"out{step}.safetensors"
        command = [program, "dump", "--config", folder / "config.json", "--weights", folder / "weights.safetensors",
                   "--tokens", folder / f"{step}.safetensors", "--grads", "--out", out]
        subprocess.run(command + (["--state", folder / "out0.safetensors"] if step and state else []), check=True,
                       stdout=subprocess.DEVNULL)
        theirs = read_safetensors(out)
        model.zero_grad(set_to_none=True)
        with torch.set_grad_enabled(attention != "flex"):
            loss, state = model(given[step]["tokens"].long(), given[step]["targets"].long(), state)
        worst = max(worst, abs(loss.item() - theirs["loss"].item()))
        if attention == "flex":
            continue
        loss.backward()
        for name, parameter in model.named_parameters():
            if name.endswith("init_state"):
                continue  # a peer begins with its values: the first step of a run alone has a gradient for it
            other = theirs["grad." + name]
            mine = torch.zeros_like(other) if parameter.grad is None else parameter.grad
            worst = max(worst, ((mine - other).abs().max() / other.abs().max().clamp(min=1e-3)).item())
    counted = sum(v.numel() for k, v in theirs.items() if k.startswith("grad."))
    if counted != parameters_of(model):
        raise ValueError(f"{parameters_of(model)} parameters, and Eddy has {counted}")
    return worst


def check_rows(program, wanted):
    """Every row, or those of these names, shrunk, and the parameters of the full ones by `bench speed --dry-run`."""
    failed = 0
    listed = subprocess.run([program, "bench", "speed", "--dry-run"], check=True, capture_output=True, text=True).stdout
    # "[gpt2_124m] the shape of GPT-2 124 M, 32 x 1024, 124 439 808 parameters"
    counts = {line[1 : line.index("]")]: int("".join(filter(str.isdigit, line.split(", ")[-1])))
              for line in listed.splitlines() if line.startswith("[")}
    with torch.device("meta"):
        full = {row["name"]: parameters_of(make_peer(row)) for row in peer_rows.speed_rows(False)
                if row["config"]["family"] != "blockwise_recurrent"}
    full |= {row["name"]: parameters_of(make_peer(row)) for row in peer_rows.speed_rows(False)
             if row["config"]["family"] == "blockwise_recurrent"}  # its tables of angles are computed
    for row in peer_rows.speed_rows(True):
        name = row["name"]
        if wanted and name not in wanted.split(","):
            continue
        if full[name] != counts.get(name):
            print(f"{name}: {full[name]} parameters, and Eddy has {counts.get(name)}")
            failed += 1
        has_window = row["config"]["family"] == "block_recurrent"
        for attention in ["sdpa", "flex"] if has_window else [""]:
            with tempfile.TemporaryDirectory() as folder:
                worst = compare(row, program, pathlib.Path(folder), attention)
            agrees = worst < 1e-9
            failed += not agrees
            print(f"{name} {attention}: {full[name]} parameters, {'agrees' if agrees else 'DIFFERS'}: {worst:.1e}",
                  flush=True)
    return 1 if failed else 0


def main():
    options = arguments()
    return check_rows(options.check, options.rows) if options.check else time_rows(options)


if __name__ == "__main__":
    sys.exit(main())
