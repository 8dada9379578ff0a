//! A unary gRPC echo through tonic, its messages being the bytes themselves.

use std::convert::Infallible;
use std::task::{Context, Poll};

use bytes::{Buf, BufMut, Bytes};
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::{Request as HttpRequest, Response as HttpResponse, uri::PathAndQuery};
use tonic::codegen::{BoxFuture, Service};
use tonic::server::{NamedService, UnaryService};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};

const MOST: usize = 1 << 30;

#[derive(Clone, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buf: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buf.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buf: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buf.copy_to_bytes(buf.remaining())))
    }
}

#[derive(Clone)]
struct EchoService;

impl NamedService for EchoService {
    const NAME: &'static str = "echo.Echo";
}

impl UnaryService<Bytes> for EchoService {
    type Response = Bytes;
    type Future = std::future::Ready<Result<Response<Bytes>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        std::future::ready(Ok(Response::new(request.into_inner())))
    }
}

impl Service<HttpRequest<Body>> for EchoService {
    type Response = HttpResponse<Body>;
    type Error = Infallible;
    type Future = BoxFuture<HttpResponse<Body>, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: HttpRequest<Body>) -> Self::Future {
        Box::pin(async move {
            let mut grpc =
                tonic::server::Grpc::new(Raw).apply_max_message_size_config(Some(MOST), Some(MOST));
            Ok(grpc.unary(EchoService, request).await)
        })
    }
}

pub(crate) struct Echo {
    channel: Channel,
}

impl Echo {
    pub(crate) async fn start() -> Echo {
        // Without it, Nagle's algorithm and delayed acknowledgements cost 40 ms an echo.
        let any = "127.0.0.1:0".parse().unwrap();
        let incoming = TcpIncoming::bind(any).unwrap().with_nodelay(Some(true));
        let addr = incoming.local_addr().unwrap();
        let server = Server::builder().add_service(EchoService);
        tokio::spawn(server.serve_with_incoming(incoming));
        let endpoint = Endpoint::from_shared(format!("http://{addr}")).unwrap();
        let channel = endpoint.tcp_nodelay(true).connect().await.unwrap();
        Echo { channel }
    }

    pub(crate) async fn echo(&self, payload: Bytes) -> Bytes {
        let mut grpc = tonic::client::Grpc::new(self.channel.clone())
            .max_decoding_message_size(MOST)
            .max_encoding_message_size(MOST);
        grpc.ready().await.unwrap();
        let path = PathAndQuery::from_static("/echo.Echo/Echo");
        grpc.unary(Request::new(payload), path, Raw)
            .await
            .unwrap()
            .into_inner()
    }
}
