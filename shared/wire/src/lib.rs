//! The Seamline protocol without IO: frames, limits, request and session state machines.
