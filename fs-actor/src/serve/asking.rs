//! A runtime's grants and record in, a page on which people answer for them out.

use std::net::{Ipv4Addr, SocketAddr};

use bailiwick::{About, Console, ConsoleRecord, ConsoleSource, GrantAuthority, ServerCard};
use tokio::net::TcpListener;

use super::{ServeError, about, tell};

/// The page on which people are asked.
pub(super) async fn page() -> Result<Console, ServeError> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let bound = TcpListener::bind(address).await;
    let listener = bound.map_err(|source| ServeError::Listen { address, source })?;
    let console = Console::serve(listener)?;
    // Whoever knows the address answers: nobody but the person is told.
    tell(&format!("asking on {}", console.url()));
    Ok(console)
}

/// What the page shows of one runtime. People are asked there and nowhere else: what a client says of grants counts for
/// nothing.
pub(super) fn source(grants: GrantAuthority, record: ConsoleRecord) -> ConsoleSource {
    let About { title, .. } = about();
    let card = ServerCard {
        name: title,
        description: "Reads, searches and changes files".into(),
        ..ServerCard::default()
    };
    ConsoleSource::new(grants).record(record).server(card)
}
