//! `cargo demo`: a trained model is cut in two, its head runs here, its activations travel over
//! QUIC to a service on loopback, the tail finishes there in batches, and the answers come back.

mod report;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use clap::Parser;
use image::RgbImage;
use seamline_assets::{FONT, MODELS, PAGE_PHOTOGRAPH, Store};
use seamline_cloud::config::ServeConfig;
use seamline_cloud::{ADMIN_TOKEN_FILE, Service, identity};
use seamline_edge::{Answer, Client, Runtime, RuntimeOptions, Tensor, Values, locate};
use seamline_examples::text::{self, Page};
use seamline_partitioner::{
    ImagePreprocess, Model, Resize, Source, SplitOptions, find_seams, split,
};
use seamline_plan::error_text;

use report::{Outcome, Report};

const MODEL: &str = "orientation";
const PICTURE: &str = "picture";
const RENDERED_PAGES: usize = 24;
/// Requests at the same time in the second pass, which shows batching.
const CONCURRENT: usize = 8;

/// Fetch a trained model, cut it, serve its tail on loopback, and send it real pages of text.
#[derive(Parser)]
struct Arguments {
    /// Print one line of JSON.
    #[arg(long)]
    json: bool,
    /// Where to cut: a seam's id or a value's name; the cheapest seam in the middle without it.
    #[arg(long)]
    at: Option<String>,
    /// How activations are sent: raw, f16 or int8.
    #[arg(long, default_value = "int8")]
    codec: String,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", error_text(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let report = tokio.block_on(demo(arguments))?;
    if arguments.json {
        println!("{}", report.json());
    } else {
        report.print();
    }
    ensure!(
        report.is_right(),
        "the split model did not answer every page rightly"
    );
    Ok(())
}

async fn demo(arguments: &Arguments) -> anyhow::Result<Report> {
    let say = |text: String| {
        if !arguments.json {
            println!("{text}");
        }
    };
    let store = Store::from_env();
    let path = std::env::var_os("ORT_DYLIB_PATH").map(PathBuf::from);
    let library = locate(path.as_deref(), &store)?;
    say(format!(
        "runtime   ONNX Runtime, {:?}: {}",
        library.source,
        library.path.display()
    ));
    let runtime = Runtime::load(&RuntimeOptions::new(library))?;

    let folder = tempfile::tempdir()?;
    let bundle = folder.path().join("bundles").join(format!("{MODEL}.seam"));
    let (model, seam) = cut(&store, &runtime, &bundle, arguments).await?;
    say(format!("cut       {seam}"));

    let upright = upright_pages(&store)?;
    let pages = text::rotations(&upright);
    say(format!(
        "pages     {} of text, in all four rotations",
        pages.len()
    ));

    let identities = folder.path().join("identity");
    make_identities(&identities)?;
    let service = Service::start(&serve_config(&bundle, &identities), &runtime).await?;
    let address = service.local_addr();
    say(format!("cloud     on {address}, mutual TLS, warmed up"));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(service.run(async {
        // Ends by a drop.
        let _ = stopped.await;
    }));

    let client = Client::builder(&bundle)
        .runtime(runtime.clone())
        .cloud(&address.to_string())
        .identity_folder(&identities, "device")
        .build()
        .await?;
    let outcomes = ask(&client, &model, &runtime, &pages).await?;
    let batch_sizes = ask_together(&client, &pages).await?;
    client.close().await;
    drop(stop);
    ensure!(
        serving.await?,
        "the service did not finish every request when it stopped"
    );
    Ok(Report {
        model: MODEL,
        seam,
        outcomes,
        batch_sizes,
    })
}

/// Cuts the model, its preprocessing in front, into a bundle; returns it whole, and the seam.
async fn cut(
    store: &Store,
    runtime: &Runtime,
    bundle: &Path,
    arguments: &Arguments,
) -> anyhow::Result<(Model, String)> {
    let pin = MODELS
        .iter()
        .find(|model| model.name == MODEL)
        .context("the model is not pinned")?;
    let path = store.get(&pin.pin)?;
    let source = Source {
        model: path,
        image: Some(ImagePreprocess {
            input: "x".into(),
            picture: PICTURE.into(),
            resize: Resize::ShortSide(256),
            center_crop: Some((224, 224)),
            mean: [0.485, 0.456, 0.406],
            std: [0.229, 0.224, 0.225],
            ..ImagePreprocess::default()
        }),
        ..Source::default()
    };
    let (runtime, bundle) = (runtime.clone(), bundle.to_owned());
    let (at, codec) = (arguments.at.clone(), arguments.codec.clone());
    let work = move || {
        let mut model = source.open()?;
        model.learn(&runtime, 1)?;
        let at = match at {
            Some(at) => at,
            None => cheapest_in_the_middle(&model)?,
        };
        let options = SplitOptions {
            at: vec![at],
            codec: Some(codec),
            ..SplitOptions::default()
        };
        std::fs::create_dir_all(bundle.parent().unwrap_or(Path::new(".")))?;
        let report = split(&model, &runtime, &bundle, &options, &source)?;
        let (_, cut) = report
            .manifest
            .cut(&report.manifest.default_cut)
            .context("the bundle has no default cut")?;
        let values: Vec<String> = cut
            .crossing
            .iter()
            .map(|crossing| crossing.spec.to_string())
            .collect();
        let seam = format!(
            "{} at {:.0} % of the work: {}",
            cut.id,
            cut.depth * 100.0,
            values.join("; ")
        );
        anyhow::Ok((model, seam))
    };
    tokio::task::spawn_blocking(work).await?
}

/// The seam with the fewest bytes between a quarter and three quarters of the work.
fn cheapest_in_the_middle(model: &Model) -> anyhow::Result<String> {
    let seams = find_seams(model, &[])?.listed;
    seams
        .iter()
        .filter(|seam| (0.25..=0.75).contains(&seam.depth()))
        .min_by_key(|seam| seam.bytes_f32)
        .map(|seam| seam.id.clone())
        .context("the model has no seam in its middle")
}

fn upright_pages(store: &Store) -> anyhow::Result<Vec<RgbImage>> {
    let licence = include_str!("../../LICENSE-APACHE");
    let font = std::fs::read(store.get(&FONT)?)?;
    let mut upright = text::render(font, licence, RENDERED_PAGES)?;
    upright.push(image::open(store.get(&PAGE_PHOTOGRAPH)?)?.into_rgb8());
    Ok(upright)
}

fn make_identities(dir: &Path) -> anyhow::Result<()> {
    use identity::create;
    const DAYS: u32 = 1;
    create::authority(dir, "demo-authority", DAYS)?;
    create::server(dir, &["127.0.0.1".into()], DAYS)?;
    create::device(dir, "device", DAYS)?;
    create::secret(&dir.join(ADMIN_TOKEN_FILE))?;
    Ok(())
}

fn serve_config(bundle: &Path, identities: &Path) -> ServeConfig {
    let mut config = ServeConfig {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        bundles: bundle.parent().unwrap_or(bundle).to_owned(),
        ..ServeConfig::default()
    };
    config.identity.dir = identities.to_owned();
    config.admin.listen = SocketAddr::from(([127, 0, 0, 1], 0));
    config
}

fn inputs(page: &Page) -> anyhow::Result<Values> {
    let (width, height) = page.picture.dimensions();
    let shape = vec![1, height as usize, width as usize, 3];
    let tensor = Tensor::from_vec(shape, page.picture.as_raw().clone())?;
    Ok(Values::from([(PICTURE.to_owned(), tensor)]))
}

/// One page after the other, beside the whole model in this process.
async fn ask(
    client: &Client,
    model: &Model,
    runtime: &Runtime,
    pages: &[Page],
) -> anyhow::Result<Vec<Outcome>> {
    let mut whole = model.session(runtime, seamline_partitioner::Optimization::All)?;
    // The first request also pays for slow start; the report is about a warm connection.
    client.infer(inputs(&pages[0])?).await?;
    let mut outcomes = Vec::with_capacity(pages.len());
    for page in pages {
        let inputs = inputs(page)?;
        let expected = model.run(&mut whole, &inputs)?;
        let expected = expected
            .first()
            .context("the model has no output")?
            .as_slice::<f32>()?;
        let answer = client.infer(inputs).await?;
        let got = answer.first::<f32>()?;
        let differences = expected.iter().zip(got.iter()).map(|(e, g)| (e - g).abs());
        outcomes.push(Outcome {
            class: argmax(got.iter().copied())?,
            whole_class: argmax(expected.iter().copied())?,
            right_class: page.quarter_turns,
            max_abs_diff: differences.fold(0.0, f32::max),
            raw_bytes: page.picture.as_raw().len() as u64,
            f32_bytes: f32_bytes(client),
            bytes_sent: answer.bytes_sent,
            timings: answer.timings,
        });
    }
    Ok(outcomes)
}

/// Bytes of the crossing values as f32.
fn f32_bytes(client: &Client) -> u64 {
    let values = client.cut().crossing.iter();
    values
        .map(|value| value.reference.iter().product::<u64>() * 4)
        .sum()
}

/// All pages again, several at a time; returns how many requests each answer's batch had.
async fn ask_together(client: &Client, pages: &[Page]) -> anyhow::Result<Vec<u32>> {
    // Heads run ahead, so that the requests really come at the same time.
    let mut shares = Vec::new();
    for worker in 0..CONCURRENT {
        let mut share = Vec::new();
        for page in pages.iter().skip(worker).step_by(CONCURRENT) {
            share.push((client.prepare(inputs(page)?).await?, page.quarter_turns));
        }
        shares.push((client.with_own_connection().await?, share));
    }
    let mut workers = tokio::task::JoinSet::<anyhow::Result<Vec<u32>>>::new();
    for (client, share) in shares {
        workers.spawn(async move {
            let mut sizes = Vec::new();
            for (request, right) in share {
                let answer: Answer = client.send(request).await?;
                let class = argmax(answer.first::<f32>()?.iter().copied())?;
                ensure!(class == right, "a page was answered wrongly in a batch");
                sizes.push(answer.batch_size);
            }
            client.close().await;
            Ok(sizes)
        });
    }
    let mut sizes = Vec::new();
    let all = async {
        while let Some(worker) = workers.join_next().await {
            sizes.extend(worker??);
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(Duration::from_secs(120), all)
        .await
        .map_err(|_| anyhow!("the concurrent pass did not end within two minutes"))??;
    Ok(sizes)
}

fn argmax(scores: impl Iterator<Item = f32>) -> anyhow::Result<usize> {
    scores
        .enumerate()
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .map(|(class, _)| class)
        .context("the model gave no scores")
}
