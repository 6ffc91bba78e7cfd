//! An emulated wide area on one machine: what the papers had in hardware.
//!
//! - [`scenario`]: what a lab is, as the user writes it
//! - [`settings`]: the same by name, and what a lab changes of the machine
//! - [`link`]: one direction of a path as a pure queue in virtual time
//! - [`storage`]: a directory behind a modelled device
//! - [`packet`]: IP packets and super-packets, cut, damaged, rewritten
//! - [`emulator`]: the same links over real packets
//! - [`tun`], [`netns`]: the hosts' devices and namespaces
//! - [`lab`]: hosts and paths that run
//! - [`running`]: a lab in its own process, from its start to its end
//! - [`background`]: other traffic on the path
//! - [`report`]: what they did, and what speaks against believing it
//! - [`client`]: labs that stay, as other processes see them
//! - [`command`]: a command on a host, with a server at the other end
//! - [`processes`], [`control`]: commands on its hosts, and how it is asked
//! - [`isolate`]: the process that a lab lives in, and that nothing of it
//!   outlives
//! - [`state`], [`machine`]: what labs know of each other, and what they change
//!   of the machine

pub mod background;
pub mod client;
pub mod command;
pub mod control;
pub mod device;
pub mod emulator;
pub mod isolate;
pub mod lab;
pub mod link;
pub mod machine;
pub mod netns;
pub mod packet;
pub mod processes;
pub mod report;
mod rtnetlink;
pub mod running;
pub mod scenario;
pub mod settings;
pub mod state;
pub mod storage;
pub mod tun;
pub mod veth;
