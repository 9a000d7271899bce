//! Parts of addresses.

/// Hosts with the ports that are said; a host may be percent-encoded.
pub(super) fn hosts_of(text: &str) -> Result<Vec<(String, Option<u16>)>, String> {
    text.split(',').map(str::trim).filter(|host| !host.is_empty()).map(host_of).collect()
}

fn host_of(text: &str) -> Result<(String, Option<u16>), String> {
    let wrong = || format!("{text:?} is not HOST:PORT");
    let (host, rest) = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']').ok_or_else(wrong)?,
        None => text.find(':').map_or((text, ""), |at| text.split_at(at)),
    };
    let port = match rest.strip_prefix(':') {
        Some(number) => Some(number.parse().map_err(|_| wrong())?),
        None if rest.is_empty() => None,
        None => return Err(wrong()),
    };
    if host.contains(['?', '#', ' ']) {
        return Err(wrong());
    }
    Ok((decoded(host)?, port))
}

/// Takes `%XX` for the byte that it stands for.
pub(super) fn decoded(text: &str) -> Result<String, String> {
    let wrong = || "a % in an address must be followed by two hexadecimal digits".to_owned();
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let pair = [rest.next().ok_or_else(wrong)?, rest.next().ok_or_else(wrong)?];
            let digits = std::str::from_utf8(&pair).map_err(|_| wrong())?;
            bytes.push(u8::from_str_radix(digits, 16).map_err(|_| wrong())?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}
