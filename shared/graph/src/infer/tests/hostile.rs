//! Nothing that a file says makes inference panic, hang or grow without bound.

use std::time::{Duration, Instant};

use seamline_plan::{Bindings, DType, Dim};

use super::{F, shape, shape_of};
use crate::builder::{
    GraphBuilder, body, float, int, ints, node, string, tensor, tensor_attribute,
};
use crate::infer::rules;
use crate::infer::{domains, flops, infer};
use crate::proto::{AttributeProto, FunctionProto};

/// A small generator (splitmix64): tests need variety, not quality.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[usize::try_from(self.next() % list.len() as u64).unwrap()]
    }

    fn number(&mut self) -> i64 {
        let numbers = [
            0,
            1,
            2,
            3,
            4,
            7,
            -1,
            -2,
            -5,
            1 << 31,
            i64::MAX,
            i64::MIN,
            i64::MAX - 1,
        ];
        *self.pick(&numbers)
    }

    fn numbers(&mut self) -> Vec<i64> {
        (0..self.next() % 6).map(|_| self.number()).collect()
    }

    fn dims(&mut self) -> Vec<Dim> {
        let sizes = [
            Dim::Fixed(0),
            Dim::Fixed(1),
            Dim::Fixed(3),
            Dim::Fixed(8),
            Dim::Fixed(u64::MAX),
            Dim::Fixed(i64::MAX as u64),
            Dim::from("N"),
            Dim::from("M"),
            Dim::Unknown,
        ];
        (0..self.next() % 6)
            .map(|_| self.pick(&sizes).clone())
            .collect()
    }

    fn attributes(&mut self) -> Vec<AttributeProto> {
        let integers = [
            "axis",
            "batch_dims",
            "blocksize",
            "ceil_mode",
            "group",
            "hidden_size",
            "k",
            "keepdims",
            "layout",
            "num_heads",
            "kv_num_heads",
            "q_num_heads",
            "N",
            "to",
            "dtype",
            "start",
            "end",
            "transA",
            "transB",
            "num_outputs",
            "num_scan_inputs",
            "onesided",
            "inverse",
            "output_height",
            "sample_size",
            "allowzero",
            "value_int",
        ];
        let lists = [
            "axes",
            "dilations",
            "ends",
            "kernel_shape",
            "output_padding",
            "output_shape",
            "pads",
            "perm",
            "pooled_shape",
            "shape",
            "split",
            "starts",
            "strides",
            "qkv_hidden_sizes",
        ];
        let texts = [
            ("auto_pad", "SAME_UPPER"),
            ("auto_pad", "VALID"),
            ("equation", "ij,jk->ik"),
            ("equation", "...i,i"),
            ("equation", "->a"),
            ("keep_aspect_ratio_policy", "not_larger"),
            ("mode", "linear"),
        ];
        let mut attributes = Vec::new();
        for _ in 0..self.next() % 4 {
            attributes.push(int(self.pick::<&str>(&integers), self.number()));
            attributes.push(ints(self.pick::<&str>(&lists), &self.numbers()));
        }
        if self.next().is_multiple_of(2) {
            let (name, value) = *self.pick(&texts);
            attributes.push(string(name, value));
            attributes.push(float("value_float", f32::NAN));
        }
        attributes
    }
}

#[test]
fn no_operator_panics_on_nonsense() {
    let ops: Vec<(&str, &str)> = rules::names().collect();
    assert!(ops.len() > 200, "{}", ops.len());
    for seed in 0..40 {
        for &(domain, op) in &ops {
            let mut random =
                Random(seed ^ (op.len() as u64) << 32 ^ u64::from(op.as_bytes()[0]) << 40);
            let opset = *random.pick(&[7, 9, 10, 11, 13, 18, 21]);
            let mut builder = GraphBuilder::new("test", opset);
            builder.import("com.microsoft", 1);
            let count = usize::try_from(random.next() % 6).unwrap();
            let names: Vec<String> = (0..count).map(|i| format!("x{i}")).collect();
            for name in &names {
                match random.next() % 4 {
                    0 => {
                        let list = random.numbers();
                        builder.weight_i64(name, &[list.len() as i64], &list);
                    }
                    1 => {
                        builder.weight_f32(name, &[2], &[f32::NAN, 1e30]);
                    }
                    2 => {
                        builder.weight_i64(name, &[], &[random.number()]);
                    }
                    _ => {
                        let dtype = *random.pick(&[DType::F32, DType::I64, DType::Bool, DType::U8]);
                        builder.input(name, dtype, &random.dims());
                    }
                }
            }
            let inputs: Vec<&str> = names.iter().map(String::as_str).collect();
            let name = if domain.is_empty() {
                op.to_owned()
            } else {
                format!("{domain}::{op}")
            };
            let outputs =
                *random.pick::<&[&str]>(&[&["y"][..], &["y", "z"], &["y", "z", "u", "v"]]);
            builder.node_with(&name, &inputs, outputs, random.attributes());
            // A panic names the operator through this thread's captured output.
            println!("seed {seed}: {name}");
            let graph = builder.build().unwrap();
            for bindings in [
                Bindings::new(),
                Bindings::from([("N".into(), 0), ("M".into(), u64::MAX)]),
            ] {
                let types = infer(&graph, &bindings);
                assert!(
                    flops(&graph, &types).iter().all(|count| !count.is_nan()),
                    "seed {seed}: {name}"
                );
                domains(&graph, &types);
            }
        }
    }
}

#[test]
fn a_huge_rank_is_dropped() {
    let mut builder = GraphBuilder::new("test", 13);
    builder
        .input("x", F, &shape("N"))
        .input("target", DType::I64, &[Dim::Fixed(1 << 40)])
        .node("Reshape", &["x", "target"], &["y"])
        .node("ConstantOfShape", &["target"], &["z"]);
    let graph = builder.build().unwrap();
    let types = infer(&graph, &Bindings::new());
    assert_eq!(shape_of(&graph, &types, "y"), "none");
    assert_eq!(shape_of(&graph, &types, "z"), "none");
}

#[test]
fn functions_that_call_each_other_end() {
    // Each calls the next one twice: 2^40 nodes, were they all visited.
    let mut builder = GraphBuilder::new("test", 13);
    builder.import("local", 1).input("x", F, &shape("N"));
    for i in 0..40 {
        let next = format!("local::F{}", i + 1);
        builder.function(FunctionProto {
            name: Some(format!("F{i}")),
            domain: Some("local".into()),
            input: vec!["a".into()],
            output: vec!["c".into()],
            node: vec![
                node(&next, &["a"], &["b"], vec![]),
                node(&next, &["b"], &["c"], vec![]),
            ],
            ..FunctionProto::default()
        });
    }
    builder.node("local::F0", &["x"], &["y"]);
    let graph = builder.build().unwrap();
    assert_eq!(
        shape_of(&graph, &infer(&graph, &Bindings::new()), "y"),
        "none"
    );
}

#[test]
fn nested_bodies_and_sealed_weights() {
    let mut inner = GraphBuilder::new("inner", 13);
    inner
        .node("Relu", &["x"], &["deep"])
        .output("deep", F, &shape("N 4"));
    let mut outer = GraphBuilder::new("outer", 13);
    outer
        .node_with(
            "If",
            &["flag"],
            &["mid"],
            vec![
                body("then_branch", inner.to_body()),
                body("else_branch", inner.to_body()),
            ],
        )
        .output("mid", F, &shape("N 4"));
    let mut builder = GraphBuilder::new("test", 13);
    builder
        .input("x", F, &shape("N 4"))
        .input("flag", DType::Bool, &[])
        .node_with(
            "If",
            &["flag"],
            &["y"],
            vec![
                body("then_branch", outer.to_body()),
                body("else_branch", outer.to_body()),
            ],
        )
        .node_with(
            "Constant",
            &[],
            &["c"],
            vec![tensor_attribute(
                "value",
                tensor("", DType::I64, &[-3, i64::MAX], vec![1, 2, 3]),
            )],
        );
    let graph = builder.build().unwrap();
    let types = infer(&graph, &Bindings::from([("N".into(), 3)]));
    assert_eq!(shape_of(&graph, &types, "y"), "3 4");
}

#[test]
fn ten_thousand_nodes_take_little_time() {
    let mut builder = GraphBuilder::new("test", 13);
    builder
        .input("x0", F, &shape("batch sequence 64"))
        .weight_f32("w", &[64, 64], &[0.0; 64 * 64]);
    for i in 0..5_000 {
        builder
            .node("MatMul", &[&format!("x{i}"), "w"], &[&format!("m{i}")])
            .node("Relu", &[&format!("m{i}")], &[&format!("x{}", i + 1)]);
    }
    let graph = builder.build().unwrap();
    let start = Instant::now();
    let types = infer(&graph, &Bindings::new());
    let took = start.elapsed();
    assert_eq!(shape_of(&graph, &types, "x5000"), "batch sequence 64");
    // Some 10 ms on a quiet core; the bound leaves room for a busy machine and a debug build.
    assert!(took < Duration::from_secs(2), "{took:?}");
}
