//! `seamline report`: what is read, what is refused, and the page itself, in a browser too.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod browser;
mod fixture;
mod page;
mod reading;
