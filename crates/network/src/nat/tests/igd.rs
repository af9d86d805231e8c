//! A router on loopback that speaks UPnP: it answers the search over UDP, and HTTP with its description, its list of actions, and what
//! became of a request.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

const SERVICE: &str = "urn:schemas-upnp-org:service:WANIPConnection:1";

/// What a router does.
#[derive(Clone, Debug)]
pub(in crate::nat) struct Conduct {
    pub(in crate::nat) ip: &'static str,
    /// Refuses to open the port that is asked for with this code.
    pub(in crate::nat) add_error: Option<u16>,
    /// Opens ports for ever only.
    pub(in crate::nat) is_permanent: bool,
    /// Answers every page with this.
    pub(in crate::nat) garbage: Option<Vec<u8>>,
    /// The port that it opens if any will do.
    pub(in crate::nat) any_port: u16,
    /// Answers the search with this first.
    pub(in crate::nat) first_answer: Option<Vec<u8>>,
    /// Where its description is, if not where it is served.
    pub(in crate::nat) location: Option<SocketAddr>,
}

impl Default for Conduct {
    fn default() -> Self {
        Self {
            ip: "203.0.113.7",
            add_error: None,
            is_permanent: false,
            garbage: None,
            any_port: 40404,
            first_answer: None,
            location: None,
        }
    }
}

#[derive(Clone, Debug)]
pub(in crate::nat) struct Igd {
    /// Where it answers the search.
    pub(in crate::nat) ssdp: SocketAddr,
    pub(in crate::nat) conduct: Arc<Mutex<Conduct>>,
    /// The requests that it got: action, protocol, outer port, lease.
    pub(in crate::nat) asked: Arc<Mutex<Vec<String>>>,
}

impl Igd {
    pub(in crate::nat) async fn start(conduct: Conduct) -> Self {
        let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let igd = Self {
            ssdp: udp.local_addr().unwrap(),
            conduct: Arc::new(Mutex::new(conduct)),
            asked: Arc::default(),
        };
        tokio::spawn(igd.clone().answer_search(udp, tcp.local_addr().unwrap()));
        tokio::spawn(igd.clone().serve(tcp));
        igd
    }

    pub(in crate::nat) fn take_asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }

    async fn serve(self, listener: TcpListener) {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(self.clone().answer(stream));
        }
    }

    async fn answer(self, mut stream: TcpStream) {
        let request = read_request(&mut stream).await;
        let (status, body) = self.page(&request);
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        let _ = stream.write_all(&[head.as_bytes(), &body].concat()).await;
    }

    fn page(&self, request: &str) -> (&'static str, Vec<u8>) {
        let conduct = self.conduct.lock().unwrap().clone();
        if let Some(garbage) = conduct.garbage {
            return ("200 OK", garbage);
        }
        let ok = |page: String| ("200 OK", page.into_bytes());
        match request.split(' ').nth(1) {
            Some("/root.xml") => ok(description()),
            Some("/actions.xml") => ok(actions()),
            _ if request.contains("GetExternalIPAddress") => ok(answer(
                "GetExternalIPAddress",
                &format!(
                    "<NewExternalIPAddress>{}</NewExternalIPAddress>",
                    conduct.ip
                ),
            )),
            _ => self.change(request, &conduct),
        }
    }

    fn change(&self, request: &str, conduct: &Conduct) -> (&'static str, Vec<u8>) {
        let names = ["AddAnyPortMapping", "AddPortMapping", "DeletePortMapping"];
        let name = names
            .into_iter()
            .find(|name| request.contains(&format!("#{name}\"")));
        let name = name.unwrap_or_default();
        let value = |tag: &str| {
            let after = request
                .split_once(&format!("<{tag}>"))
                .map(|(_, after)| after);
            after
                .and_then(|after| after.split('<').next())
                .unwrap_or_default()
                .trim()
        };
        let (protocol, port) = (value("NewProtocol"), value("NewExternalPort"));
        let lease = value("NewLeaseDuration");
        let asked = format!("{name} {protocol} {port} {lease}");
        self.asked.lock().unwrap().push(asked.trim().to_owned());
        let refused = match name {
            "AddPortMapping" if conduct.is_permanent && lease != "0" => Some(725),
            "AddPortMapping" => conduct.add_error,
            _ => None,
        };
        match refused {
            Some(code) => ("500 Internal Server Error", fault(code).into_bytes()),
            None => {
                let port = conduct.any_port;
                let body = match name {
                    "AddAnyPortMapping" => format!("<NewReservedPort>{port}</NewReservedPort>"),
                    _ => String::new(),
                };
                ("200 OK", answer(name, &body).into_bytes())
            }
        }
    }

    async fn answer_search(self, socket: UdpSocket, http: SocketAddr) {
        let mut buffer = [0; 1500];
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            assert!(buffer[..length].starts_with(b"M-SEARCH * HTTP/1.1\r\n"));
            let conduct = self.conduct.lock().unwrap().clone();
            if let Some(first) = conduct.first_answer {
                socket.send_to(&first, from).await.unwrap();
            }
            let answer = search_answer(conduct.location.unwrap_or(http));
            socket.send_to(&answer, from).await.unwrap();
        }
    }
}

/// What says that the description of a router is there.
pub(in crate::nat) fn search_answer(http: SocketAddr) -> Vec<u8> {
    let text = format!("HTTP/1.1 200 OK\r\nST: any\r\nLocation: http://{http}/root.xml\r\n\r\n");
    text.into_bytes()
}

/// The head and the body, whose length the head says.
async fn read_request(stream: &mut TcpStream) -> String {
    let mut data = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&data).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let head = head.to_ascii_lowercase();
            let length = head
                .split_once("content-length:")
                .map_or("0", |(_, after)| after.lines().next().unwrap_or_default());
            if body.len() >= length.trim().parse().unwrap() {
                return text;
            }
        }
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return text,
            Ok(length) => data.extend(&buffer[..length]),
        }
    }
}

fn description() -> String {
    format!(
        "<?xml version=\"1.0\"?><root><device><deviceList><device><deviceList><device><serviceList>\
         <service><serviceType>{SERVICE}</serviceType><SCPDURL>/actions.xml</SCPDURL>\
         <controlURL>/control</controlURL></service></serviceList></device></deviceList></device>\
         </deviceList></device></root>"
    )
}

fn actions() -> String {
    let action = |name: &str, arguments: &[&str]| {
        let arguments = arguments.iter().map(|name| {
            format!("<argument><name>{name}</name><direction>in</direction></argument>")
        });
        let arguments: String = arguments.collect();
        format!("<action><name>{name}</name><argumentList>{arguments}</argumentList></action>")
    };
    let add = [
        "NewRemoteHost",
        "NewExternalPort",
        "NewProtocol",
        "NewInternalPort",
        "NewInternalClient",
        "NewEnabled",
        "NewPortMappingDescription",
        "NewLeaseDuration",
    ];
    let actions = [
        action("AddPortMapping", &add),
        action("AddAnyPortMapping", &add),
        action("DeletePortMapping", &add[..3]),
    ];
    format!("<scpd><actionList>{}</actionList></scpd>", actions.concat())
}

fn answer(name: &str, inner: &str) -> String {
    format!(
        "<s:Envelope xmlns:s=\"http://schemas.xmlsoap.org/soap/envelope/\"><s:Body>\
         <u:{name}Response xmlns:u=\"{SERVICE}\">{inner}</u:{name}Response></s:Body></s:Envelope>"
    )
}

fn fault(code: u16) -> String {
    format!(
        "<s:Envelope xmlns:s=\"http://schemas.xmlsoap.org/soap/envelope/\"><s:Body><s:Fault>\
         <detail><UPnPError xmlns=\"urn:schemas-upnp-org:control-1-0\"><errorCode>{code}</errorCode>\
         <errorDescription>no</errorDescription></UPnPError></detail></s:Fault></s:Body></s:Envelope>"
    )
}
