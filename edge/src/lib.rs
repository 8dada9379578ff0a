//! The device SDK of Seamline and its command line.
