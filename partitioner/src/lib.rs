//! Plans and cuts models; the seamline command line.
