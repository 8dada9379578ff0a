use super::*;
use crate::DType;

pub(crate) fn manifest() -> Manifest {
    let spec = |name: &str, shape: Vec<crate::Dim>| TensorSpec {
        name: name.into(),
        dtype: DType::F32,
        shape,
    };
    Manifest {
        format: MANIFEST_FORMAT,
        model: ModelInfo {
            name: "m".into(),
            graph_hash: Fingerprint::of(b"m"),
            metadata: BTreeMap::new(),
        },
        inputs: vec![spec("x", vec!["N".into(), 4.into()])],
        outputs: vec![spec("y", vec!["N".into(), 2.into()])],
        states: Vec::new(),
        stages: vec![Stage {
            inputs: vec!["x".into()],
            outputs: vec!["y".into()],
            nodes: 1,
            edge: None,
            cloud: Some("cloud/stage0.onnx".into()),
        }],
        cuts: vec![Cut {
            id: "input".into(),
            stage: 0,
            depth: 0.0,
            crossing: vec![Crossing {
                spec: spec("x", vec!["N".into(), 4.into()]),
                codecs: vec![CodecSpec::Raw, CodecSpec::Int8 { axis: 1 }],
                batch_axis: Some(0),
                reference: vec![1, 4],
            }],
            replies: vec![Reply {
                spec: spec("y", vec!["N".into(), 2.into()]),
                codec: CodecSpec::Raw,
                batch_axis: Some(0),
            }],
        }],
        default_cut: "input".into(),
        files: vec![FileEntry {
            path: "cloud/stage0.onnx".into(),
            bytes: 3,
            blake3: Fingerprint::of(b"abc"),
        }],
    }
}

#[test]
fn a_manifest_survives_the_round_trip() {
    let manifest = manifest();
    assert_eq!(
        Manifest::parse(&manifest.to_json().unwrap()).unwrap(),
        manifest
    );
}

#[test]
fn a_picture_may_go_in_several_qualities() {
    let mut manifest = manifest();
    let crossing = &mut manifest.cuts[0].crossing[0];
    crossing.spec.dtype = DType::U8;
    crossing.spec.shape = vec!["N".into(), 4.into(), 5.into(), 3.into()];
    crossing.reference = vec![1, 4, 5, 3];
    crossing.codecs = ["jpeg85", "jpeg60", "webp80", "png"]
        .map(|name| CodecSpec::from_name(name).unwrap())
        .into();
    assert_eq!(
        Manifest::parse(&manifest.to_json().unwrap()).unwrap(),
        manifest
    );
}

#[test]
fn a_later_format_is_named_before_its_fields_are_read() {
    let error = Manifest::parse(br#"{"format":9,"new":true}"#).unwrap_err();
    assert!(matches!(
        error,
        BundleError::Format {
            got: 9,
            supported: MANIFEST_FORMAT
        }
    ));
}

#[test]
fn inconsistencies_are_refused_by_name() {
    type Edit = fn(&mut Manifest);
    let edits: [(&str, Edit); 30] = [
        ("`C:/evil` is not a plain path", |m| {
            m.files[0].path = "C:/evil".into()
        }),
        ("`/etc/passwd` is not a plain path", |m| {
            m.files[0].path = "/etc/passwd".into()
        }),
        ("`cloud/../../evil` is not a plain path", |m| {
            m.files[0].path = "cloud/../../evil".into()
        }),
        ("does not lie in `cloud/`", |m| {
            m.files[0].path = "edge/stage0.onnx".into();
            m.stages[0].cloud = Some("edge/stage0.onnx".into());
        }),
        ("does not lie in `edge/`", |m| {
            m.stages[0].edge = Some("cloud/stage0.onnx".into());
        }),
        ("`x` lists the codec int8 twice", |m| {
            let codec = CodecSpec::Int8 { axis: 0 };
            m.cuts[0].crossing[0].codecs.push(codec);
        }),
        ("`x` lists the codec raw twice", |m| {
            m.cuts[0].crossing[0].codecs.push(CodecSpec::Raw)
        }),
        ("`x` crosses twice", |m| {
            let twice = m.cuts[0].crossing[0].clone();
            m.cuts[0].crossing.push(twice);
        }),
        ("`cuts` has 1025 entries; at most 1024", |m| {
            m.cuts = vec![m.cuts[0].clone(); MAX_CUTS + 1];
        }),
        ("`stages` has 2049 entries; at most 2048", |m| {
            m.stages = vec![m.stages[0].clone(); MAX_STAGES + 1];
        }),
        ("at most 68719476736", |m| {
            m.cuts[0].crossing[0].reference[0] = u64::MAX
        }),
        ("stages[0] names `gone`", |m| {
            m.stages[0].cloud = Some("gone".into())
        }),
        ("`../evil` is not a plain path", |m| {
            m.files[0].path = "../evil".into()
        }),
        ("`C:\\evil` is not a plain path", |m| {
            m.files[0].path = "C:\\evil".into()
        }),
        ("no axis 7", |m| m.cuts[0].crossing[0].batch_axis = Some(7)),
        ("no axis 9", |m| {
            m.cuts[0].crossing[0].codecs = vec![CodecSpec::Int8 { axis: 9 }]
        }),
        ("codec packed does not take `x` of f32", |m| {
            m.cuts[0].crossing[0].codecs = vec![CodecSpec::Packed];
        }),
        ("has quality 0; expected 1 to 100", |m| {
            let crossing = &mut m.cuts[0].crossing[0];
            crossing.spec.dtype = DType::U8;
            crossing.codecs = vec![CodecSpec::Jpeg { quality: 0 }];
        }),
        ("has quality 101; expected 1 to 100", |m| {
            let crossing = &mut m.cuts[0].crossing[0];
            crossing.spec.dtype = DType::U8;
            crossing.codecs = vec![CodecSpec::Webp { quality: 101 }];
        }),
        ("codec jpeg85 does not take `x` of f32; it takes u8", |m| {
            m.cuts[0].crossing[0].codecs = vec![CodecSpec::Jpeg { quality: 85 }]
        }),
        (
            "codec webp75 does not take `x: u8 [N, 4, 3]`; it takes pictures [N, H, W, 3]",
            |m| {
                let crossing = &mut m.cuts[0].crossing[0];
                crossing.spec.dtype = DType::U8;
                crossing.spec.shape = vec!["N".into(), 4.into(), 3.into()];
                crossing.codecs = vec![CodecSpec::Webp { quality: 75 }];
            },
        ),
        ("codec png does not take `x: u8 [N, 4]`", |m| {
            let crossing = &mut m.cuts[0].crossing[0];
            crossing.spec.dtype = DType::U8;
            crossing.codecs = vec![CodecSpec::Png];
        }),
        ("`x` lists the codec jpeg85 twice", |m| {
            let crossing = &mut m.cuts[0].crossing[0];
            crossing.spec.dtype = DType::U8;
            crossing.spec.shape = vec!["N".into(), 4.into(), 5.into(), 3.into()];
            crossing.codecs = vec![CodecSpec::Jpeg { quality: 85 }; 2];
        }),
        ("stage 5 of 1", |m| m.cuts[0].stage = 5),
        ("nothing before the cut makes it", |m| {
            m.cuts[0].crossing[0].spec.name = "z".into()
        }),
        ("the tail reads `x`", |m| m.cuts[0].crossing.clear()),
        ("the tail does not make it", |m| m.stages[0].outputs.clear()),
        ("`outputs` is empty", |m| m.outputs.clear()),
        ("control character", |m| m.model.name = "a\u{1b}[2J".into()),
        ("`default_cut` names `s9`", |m| m.default_cut = "s9".into()),
    ];
    for (expected, edit) in edits {
        let mut manifest = manifest();
        edit(&mut manifest);
        let error = manifest.to_json().unwrap_err().to_string();
        assert!(error.contains(expected), "{error:?} lacks {expected:?}");
    }
}
