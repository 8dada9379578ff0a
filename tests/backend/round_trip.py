"""Round-trips the ONNX project's own backend cases through `seamline convert`.

Every case is written as a model file, converted, and then

1. checked by `onnx.checker`, in full where the original passes the full check;
2. compared with the original as a message: what convert may change is listed at `normal`;
3. run, the original and the written model, on the case's own inputs, in ONNX Runtime or, where that
   does not take the original, in `onnx.reference`. Outputs must be equal bit for bit. Where the
   original itself gives other values from run to run, only types and shapes are compared.

Prints counts and one line a failure. Ends with 1 where fewer than 98 % of the cases pass.
"""

import argparse
import collections
import dataclasses
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

import numpy
import onnx
import onnx.checker
import onnx.reference
import onnxruntime
from onnx.backend.test.case.node import collect_testcases

SHARE_THAT_MUST_PASS = 0.98

ONNX_DOMAINS = ("", "ai.onnx")


@dataclasses.dataclass
class Case:
    name: str
    kind: str
    # Lists of inputs by position; none where the project gives no data for the model.
    data: list


class Failure(Exception):
    """Why a case does not pass."""


def collect(folder, only):
    """Writes every case to `folder`, as NAME.onnx."""
    cases = []

    def add(name, kind, model, data):
        if only in name:
            onnx.save(model, folder / f"{name}.onnx")
            cases.append(Case(name, kind, data))

    for case in collect_testcases(None):
        data = [inputs for inputs, _ in case.data_sets or []]
        add(case.name, "node", case.model, data)
    stored = pathlib.Path(onnx.__file__).parent / "backend" / "test" / "data"
    for path in sorted((stored / "light").glob("light_*.onnx")):
        add(path.stem, "light", onnx.load(path), [])
    for kind in ("simple", "pytorch-operator", "pytorch-converted"):
        for path in sorted((stored / kind).glob("*/model.onnx")):
            add(path.parent.name, kind, onnx.load(path), stored_data(path))
    return cases


def stored_data(model):
    """The inputs that lie beside a stored model."""
    data = []
    graph_inputs = onnx.load(model).graph.input
    for folder in sorted(model.parent.glob("test_data_set_*")):
        files = [folder / f"input_{index}.pb" for index in range(len(graph_inputs))]
        files = [file for file in files if file.exists()]
        data.append([read_value(file, declared) for file, declared in zip(files, graph_inputs)])
    return data


def read_value(file, declared):
    kinds = {
        "tensor_type": (onnx.TensorProto, onnx.numpy_helper.to_array),
        "sequence_type": (onnx.SequenceProto, onnx.numpy_helper.to_list),
        "optional_type": (onnx.OptionalProto, onnx.numpy_helper.to_optional),
    }
    message, decode = kinds[declared.type.WhichOneof("value")]
    message = message()
    message.ParseFromString(file.read_bytes())
    return decode(message)


def passes_checker(model, full):
    try:
        onnx.checker.check_model(model, full_check=full)
    except Exception as error:
        return str(error).strip().splitlines()[0]
    return None


def check(original, written):
    """The written model must pass what the original passes."""
    for full in (True, False):
        if passes_checker(original, full) is None:
            if problem := passes_checker(written, full):
                raise Failure(f"checker{' (full)' if full else ''}: {problem}")
            return "full" if full else "plain"
    return "none"


def normal(model):
    """The message without what convert may change.

    Convert writes nodes in topological order, ONNX's own domain as "", initializers and value
    declarations in an order of its own, and external data inside.
    """
    model = onnx.ModelProto.FromString(model.SerializeToString())
    graph = model.graph
    for node in graph.node:
        if node.domain in ONNX_DOMAINS:
            node.ClearField("domain")
        for field in ("name", "overload"):
            if not getattr(node, field):
                node.ClearField(field)
    for field in ("initializer", "value_info", "node"):
        values = sorted(getattr(graph, field), key=lambda value: value.SerializeToString(True))
        del getattr(graph, field)[:]
        getattr(graph, field).extend(values)
    # Before IR version 4 an initializer is an input too; those may be declared in any order.
    weights = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in weights]
    declared = [value for value in graph.input if value.name in weights]
    del graph.input[:]
    graph.input.extend(inputs + sorted(declared, key=lambda value: value.name))
    return model


def compare_messages(original, written):
    original, written = normal(original), normal(written)
    if original == written:
        return
    fields = [
        field.name
        for message, other in ((original, written), (original.graph, written.graph))
        for field in message.DESCRIPTOR.fields
        if field.name != "graph" and getattr(message, field.name) != getattr(other, field.name)
    ]
    raise Failure(f"the written model differs from the original in {', '.join(fields)}")


def onnx_runtime(model, inputs):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return lambda: session.run(None, by_name(model, inputs))


def reference(model, inputs):
    evaluator = onnx.reference.ReferenceEvaluator(model)
    return lambda: evaluator.run(None, by_name(model, inputs))


def by_name(model, inputs):
    if inputs is None:
        inputs = random_inputs(model)
    weights = {tensor.name for tensor in model.graph.initializer}
    names = [value.name for value in model.graph.input if value.name not in weights]
    if len(names) < len(inputs):
        names = [value.name for value in model.graph.input]
    return {name: as_value(value) for name, value in zip(names, inputs)}


def as_value(value):
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    if isinstance(value, list) or value is None:
        return value
    return numpy.asarray(value)


def random_inputs(model):
    generator = numpy.random.default_rng(7)
    weights = {tensor.name for tensor in model.graph.initializer}
    return [
        generator.standard_normal(
            [dim.dim_value or 1 for dim in value.type.tensor_type.shape.dim]
        ).astype(numpy.float32)
        for value in model.graph.input
        if value.name not in weights
    ]


def run(original, written, inputs):
    """Runs both; returns what ran them, and whether values could be compared."""
    problems = []
    for name, runtime in (("ONNX Runtime", onnx_runtime), ("onnx.reference", reference)):
        try:
            run_original = runtime(original, inputs)
            expected = run_original()
            again = run_original()
        except Exception as error:
            problems.append(f"{name}: {first_line(error)}")
            continue
        try:
            got = runtime(written, inputs)()
        except Exception as error:
            raise Failure(f"{name} runs the original only: {first_line(error)}") from error
        is_steady = all(map(same, expected, again))
        is_equal = same if is_steady else alike
        if len(expected) != len(got) or not all(map(is_equal, expected, got)):
            raise Failure(f"{name} gives other outputs")
        return f"{name}{'' if is_steady else ', types and shapes'}", problems
    return "nothing", problems


def first_line(error):
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


def same(a, b):
    """Equal bit for bit."""
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a == b
    if not alike(a, b):
        return False
    a, b = numpy.asarray(a), numpy.asarray(b)
    return a.tolist() == b.tolist() if a.dtype == object else a.tobytes() == b.tobytes()


def alike(a, b):
    """Equal in type and shape."""
    if a is None or b is None:
        return a is b
    a, b = numpy.asarray(a), numpy.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape


def convert(seamline, source, target):
    """Converts the whole folder; returns what the program said of each model that it refused."""
    result = subprocess.run(
        [seamline, "convert", "--json", source, target], capture_output=True, text=True
    )
    import json

    document = json.loads(result.stdout)
    return {
        pathlib.Path(model["input"]).stem: model["error"] for model in document["failed"]
    }


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--seamline",
        default=os.path.join("target", "release", "seamline"),
        help="the program (default: %(default)s)",
    )
    parser.add_argument("--only", default="", help="cases whose names contain this")
    parser.add_argument("--list", action="store_true", help="one line a case that nothing runs")
    return parser.parse_args()


def main():
    options = arguments()
    warnings.simplefilter("ignore")
    counts = collections.Counter()
    failures = []
    not_run = []
    with tempfile.TemporaryDirectory() as work:
        source, target = pathlib.Path(work, "original"), pathlib.Path(work, "written")
        source.mkdir()
        cases = collect(source, options.only)
        refused = convert(options.seamline, source, target)
        for case in cases:
            try:
                if case.name in refused:
                    raise Failure(f"convert: {refused[case.name]}")
                original = onnx.load(source / f"{case.name}.onnx")
                written = onnx.load(target / f"{case.name}.onnx")
                counts["checker: " + check(original, written)] += 1
                compare_messages(original, written)
                # A stored model without data still runs, on random inputs.
                for inputs in case.data or [None]:
                    by, problems = run(original, written, inputs)
                    counts["run by: " + by] += 1
                    if by == "nothing":
                        not_run.append(f"{case.name}: {'; '.join(problems)}")
                counts[f"passed: {case.kind}"] += 1
            except Failure as failure:
                counts[f"failed: {case.kind}"] += 1
                failures.append(f"{case.name}: {failure}")
    report(len(cases), counts, failures, not_run if options.list else [])
    return 0 if len(cases) - len(failures) >= SHARE_THAT_MUST_PASS * len(cases) else 1


def report(total, counts, failures, not_run):
    print(f"onnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}")
    for name, count in sorted(counts.items()):
        print(f"{count:5} {name}")
    print(f"{total - len(failures)} of {total} cases pass")
    for title, lines in (("FAILED", failures), ("NOT RUN", not_run)):
        for line in lines:
            print(f"{title} {line}")


if __name__ == "__main__":
    sys.exit(main())
