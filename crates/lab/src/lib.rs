//! Emulates a wide-area network on one machine, as a substitute for the hardware testbeds
//! of the papers.
//!
//! - [`scenario`]: description of a lab as the user writes it
//! - [`settings`]: the same settings by name, and the machine's parameters that a lab
//!   changes
//! - [`link`]: one direction of a path as a pure queue in virtual time
//! - [`storage`]: directories behind modelled devices
//! - [`packet`]: IP packets and super-packets: cutting, damage, address rewriting
//! - [`emulator`]: applies the links to real packets
//! - [`tun`], [`netns`]: the hosts' devices and namespaces
//! - [`lab`]: running hosts and paths
//! - [`running`]: a lab in its own process, from its start to its end
//! - [`background`]: background traffic on the path
//! - [`report`]: counters of a lab, and reasons to doubt a measurement
//! - [`client`]: labs in the background, for other processes
//! - [`command`]: runs a command on a host, with a server at the other end
//! - [`processes`], [`control`]: processes on the hosts, and the control socket
//! - [`isolate`]: the process of a lab; all its other processes end with it
//! - [`state`], [`machine`]: directories and locks of labs, and changes to the machine's
//!   parameters

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
