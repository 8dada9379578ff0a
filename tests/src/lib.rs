//! End to end tests of Seamline.
