//! What this machine says of itself: kernel settings and what processes use, from /proc and /sys.
//!
//! Deliberately absent: changing anything.

#![forbid(unsafe_code)]
