//! A service that is not warm yet.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::time::Duration;

use seamline_cloud::Service;
use seamline_edge::{Client, ErrorKind};
use seamline_tests::{cut, draw, identities, model_that_takes, runtime, serve_config};

#[tokio::test(flavor = "multi_thread")]
async fn devices_are_turned_away_at_once_until_the_service_is_warm() {
    let folder = tempfile::tempdir().unwrap();
    let (identity, bundles) = (
        folder.path().join("identity"),
        folder.path().join("bundles"),
    );
    identities(&identity);
    let bundle = bundles.join("slow.seam");
    std::fs::create_dir(&bundles).unwrap();
    let model = model_that_takes(Duration::from_secs(1));
    cut(&model, &bundle, &[], |options| options.cloud_head = true);
    let mut config = serve_config(&bundles, &identity);
    // The address must be known before the service says it.
    let free = std::net::UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    config.listen = free.local_addr().unwrap();
    drop(free);
    let runtime = runtime();
    let client = || {
        Client::builder(&bundle)
            .runtime(runtime.clone())
            .cloud(&config.listen.to_string())
            .identity_folder(&identity, "device")
    };
    let starting = Service::start(&config, &runtime);
    let mut starting = std::pin::pin!(starting);
    let early = tokio::select! {
        biased;
        _ = &mut starting => panic!("warm before a device could ask"),
        early = client().build() => early,
    };
    let error = early.map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("starting"), "{error}");
    let service = starting.await.unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(service.run(async {
        let _ = stopped.await;
    }));
    let client = client().build().await.unwrap();
    client.infer(draw(&model, 0)).await.unwrap();
    client.close().await;
    drop(stop);
    assert!(running.await.unwrap());
}
