//! Pinned files from package registries: fetch, verify, cache.
