//! Makes authorities, certificates and tokens, as files.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};

use super::{
    CA_FILE, CA_KEY_FILE, DeviceToken, IdentityError, SERVER_FILE, SERVER_KEY_FILE, TOKENS_FILE,
    read_pem,
};

/// How long an authority's certificate is valid, unless told otherwise.
pub const AUTHORITY_DAYS: u32 = 3650;
/// How long a server's or device's certificate is valid, unless told otherwise.
pub const CERTIFICATE_DAYS: u32 = 825;

/// Clocks of small devices run late; a certificate is valid this long before it was made.
const CLOCK_SLACK: Duration = Duration::from_secs(24 * 3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Makes `ca.pem` and `ca.key` in `dir`, which is created where it is missing.
///
/// # Errors
/// [`IdentityError::Exists`] where there is one already.
pub fn authority(dir: &Path, name: &str, days: u32) -> Result<(), IdentityError> {
    check_name(name)?;
    fs::create_dir_all(dir).map_err(|error| IdentityError::io(dir, error))?;
    let key = KeyPair::generate().map_err(rcgen_error)?;
    // Two authorities of one name would be told apart only by signatures that fail to verify, and
    // the error would blame the key instead of the authority.
    let key_id = blake3::hash(key.public_key_raw()).to_hex();
    let mut params = params(&format!("{name} {}", &key_id[..8]), days)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let certificate = params.self_signed(&key).map_err(rcgen_error)?;
    write_pair(
        dir,
        (CA_FILE, &certificate.pem()),
        (CA_KEY_FILE, &key.serialize_pem()),
    )
}

/// Makes `server.pem` and `server.key` in `dir`, signed by the authority there. `hosts` are the
/// names and IP addresses that clients connect to.
///
/// # Errors
/// [`IdentityError::Missing`] without an authority, [`IdentityError::Exists`], or
/// [`IdentityError::Name`] for a host that is no DNS name or address.
pub fn server(dir: &Path, hosts: &[String], days: u32) -> Result<(), IdentityError> {
    let Some(first) = hosts.first() else {
        return Err(IdentityError::Name {
            name: String::new(),
            problem: "a server needs at least one host name or IP address",
        });
    };
    let mut params = params(first, days)?;
    params.subject_alt_names = hosts
        .iter()
        .map(|host| alt_name(host))
        .collect::<Result<_, _>>()?;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    issue(dir, params, SERVER_FILE, SERVER_KEY_FILE)
}

/// Makes `NAME.pem` and `NAME.key` in `dir`, signed by the authority there: a certificate that is
/// good for clients only and carries the name.
///
/// # Errors
/// As [`server`].
pub fn device(dir: &Path, name: &str, days: u32) -> Result<(), IdentityError> {
    check_name(name)?;
    let mut params = params(name, days)?;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    issue(dir, params, &format!("{name}.pem"), &format!("{name}.key"))
}

/// Makes `NAME.token` in `dir` and adds its hash to `tokens` there.
///
/// # Errors
/// [`IdentityError::Exists`], [`IdentityError::Name`] or the operating system's.
pub fn token(dir: &Path, name: &str) -> Result<DeviceToken, IdentityError> {
    check_name(name)?;
    fs::create_dir_all(dir).map_err(|error| IdentityError::io(dir, error))?;
    let token = DeviceToken::random()?;
    write_new(
        &dir.join(format!("{name}.token")),
        &format!("{}\n", token.to_hex()),
        true,
    )?;
    let list = dir.join(TOKENS_FILE);
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(&list)
        .and_then(|mut file| writeln!(file, "{} {name}", token.hash().to_hex()))
        .map_err(|error| IdentityError::io(&list, error))?;
    Ok(token)
}

/// Writes a new random secret to `path`: 64 hex digits and a line end, readable by its owner only.
///
/// # Errors
/// [`IdentityError::Exists`] or the operating system's.
pub fn secret(path: &Path) -> Result<(), IdentityError> {
    write_new(
        path,
        &format!("{}\n", DeviceToken::random()?.to_hex()),
        true,
    )
}

pub(crate) fn fill_random(bytes: &mut [u8]) -> Result<(), IdentityError> {
    crate::tls::provider()
        .secure_random
        .fill(bytes)
        .map_err(|error| IdentityError::Unusable {
            problem: format!("the operating system gives no random bytes: {error:?}"),
        })
}

fn params(common_name: &str, days: u32) -> Result<CertificateParams, IdentityError> {
    let now =
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_err(|_| IdentityError::Unusable {
                problem: "the clock is before 1970; set it first".to_owned(),
            })?;
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let mut params = CertificateParams::default();
    params.not_before = epoch + now.saturating_sub(CLOCK_SLACK);
    // 40 years at most: X.509 dates and 32-bit devices end somewhere.
    params.not_after = epoch + (now + DAY * days.min(14_610));
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, common_name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

fn issue(
    dir: &Path,
    params: CertificateParams,
    file: &str,
    key_file: &str,
) -> Result<(), IdentityError> {
    let (ca_path, ca_key_path) = (dir.join(CA_FILE), dir.join(CA_KEY_FILE));
    let content = |path: &Path, expected| {
        let path = path.to_owned();
        move |error: rcgen::Error| IdentityError::Content {
            path,
            expected,
            problem: error.to_string(),
        }
    };
    let ca_key = KeyPair::from_pem(&read_pem(&ca_key_path)?)
        .map_err(content(&ca_key_path, "the authority's key"))?;
    let issuer = Issuer::from_ca_cert_pem(&read_pem(&ca_path)?, ca_key)
        .map_err(content(&ca_path, "the authority's certificate"))?;
    let key = KeyPair::generate().map_err(rcgen_error)?;
    let certificate = params.signed_by(&key, &issuer).map_err(rcgen_error)?;
    write_pair(
        dir,
        (file, &certificate.pem()),
        (key_file, &key.serialize_pem()),
    )
}

/// Whether a certificate can be made for `host`.
///
/// # Errors
/// [`IdentityError::Name`] for a host that is no DNS name or address.
pub fn check_host(host: &str) -> Result<(), IdentityError> {
    alt_name(host).map(drop)
}

fn alt_name(host: &str) -> Result<SanType, IdentityError> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(SanType::IpAddress(ip));
    }
    let invalid = || IdentityError::Name {
        name: host.to_owned(),
        problem: "it is neither a DNS name nor an IP address",
    };
    rustls_pki_types::DnsName::try_from(host).map_err(|_| invalid())?;
    Ok(SanType::DnsName(host.try_into().map_err(|_| invalid())?))
}

/// A name becomes part of a file's name and of log lines.
///
/// # Errors
/// [`IdentityError::Name`] where it may not.
pub fn check_name(name: &str) -> Result<(), IdentityError> {
    let fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let problem = if name.is_empty() || name.len() > 64 {
        "it must have 1 to 64 characters"
    } else if !name.chars().all(fine) || name.starts_with('.') {
        "it may have letters, digits, `-`, `_` and `.`, and must not begin with `.`"
    } else if ["ca", "server", TOKENS_FILE].contains(&name) {
        "it is taken by the authority or the service"
    } else {
        return Ok(());
    };
    Err(IdentityError::Name {
        name: name.to_owned(),
        problem,
    })
}

fn write_pair(
    dir: &Path,
    (certificate_file, certificate): (&str, &str),
    (key_file, key): (&str, &str),
) -> Result<(), IdentityError> {
    let certificate_path = dir.join(certificate_file);
    if certificate_path.exists() {
        return Err(IdentityError::Exists {
            path: certificate_path,
        });
    }
    write_new(&dir.join(key_file), key, true)?;
    write_new(&certificate_path, certificate, false)
}

/// Writes a file that is not there yet; a secret is readable by its owner alone from the start.
fn write_new(path: &Path, content: &str, secret: bool) -> Result<(), IdentityError> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(if secret { 0o600 } else { 0o644 });
    }
    #[cfg(not(unix))]
    let _ = secret;
    options
        .open(path)
        .and_then(|mut file| file.write_all(content.as_bytes()))
        .map_err(|error| IdentityError::io(path, error))
}

fn rcgen_error(error: rcgen::Error) -> IdentityError {
    IdentityError::Unusable {
        problem: error.to_string(),
    }
}
