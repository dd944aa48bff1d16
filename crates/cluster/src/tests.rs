//! Clusters of several nodes in one process.
