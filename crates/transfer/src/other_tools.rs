//! Recognises options and commands of rsync, scp and rclone that longhaul does not have, and names
//! the replacements. Also recognises values of such options that would be taken for sources.

pub mod commands;
pub mod numbers;
pub mod options;
pub mod taking;
pub mod values;
