//! Clusters of several nodes in one process. Each test has addresses of its own, 127.77.x.y.

mod evicted;
mod folders;
mod formed;
mod founding;
mod hostile;
mod node;
mod require;
mod spoken;
mod tls;
mod transcript;
