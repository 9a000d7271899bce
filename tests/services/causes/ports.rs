//! Ports without a lock service.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, listen, socket_with};

/// A port that accepts connections and never answers.
pub(crate) fn silent() -> (TcpListener, u16) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("bound").port();
    (listener, port)
}

/// A port whose queue of connections is full: the kernel drops further packets.
pub(crate) struct Full {
    listener: TcpListener,
    _first: Vec<TcpStream>,
}

impl Full {
    pub(crate) fn port(&self) -> u16 {
        self.listener.local_addr().expect("bound").port()
    }

    pub(crate) fn new() -> Self {
        let address = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));
        let socket = || {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).expect("a socket")
        };
        let listener = socket();
        bind(&listener, &address).expect("a port");
        listen(&listener, 0).expect("listens");
        let listener = TcpListener::from(listener);
        let at = listener.local_addr().expect("bound");
        let mut first = Vec::new();
        for _ in 0..3 {
            let stream = socket();
            // A connection that does not get through keeps trying, which serves as well.
            let _ = connect(&stream, &at);
            first.push(TcpStream::from(stream));
        }
        Self { listener, _first: first }
    }
}

/// A web server that answers every request with 400. It ends with the process.
pub(crate) fn web() -> u16 {
    let (listener, port) = silent();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || serve(stream));
        }
    });
    port
}

fn serve(mut stream: TcpStream) {
    let _ = stream.set_read_timeout(Some(Duration::from_secs(60)));
    let (mut request, mut buffer) = (Vec::new(), [0; 1024]);
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut buffer) {
            Ok(length) if length > 0 => request.extend_from_slice(&buffer[..length]),
            // The client has gone.
            _ => return,
        }
    }
    let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n<html></html>\r\n");
}
