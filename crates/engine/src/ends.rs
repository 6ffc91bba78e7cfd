//! Creates an end of a transfer: a session, and the stages that send or receive.

use std::sync::Arc;

use longhaul_proto::receiver::Receiver;
use longhaul_proto::sender::Sender;

use crate::recv::ReceiveSide;
use crate::send::SendSide;
use crate::session::stages::SendingStages;
use crate::session::{Machine, Side, Transfer, TransferSettings, Watch};

impl Transfer {
    /// Creates an end that sends the sources of `side`.
    pub fn sending(settings: TransferSettings, side: SendSide, watch: Watch) -> Arc<Transfer> {
        let machine = Sender::new(side.machine_settings(&settings));
        SendingStages::handle_any_codec(&side, settings.any_codec);
        let machine = Machine::sending(machine);
        Transfer::start(settings, machine, Side::Sending(Arc::new(side)), watch)
    }

    /// Creates an end that receives into the destination of `side`.
    pub fn receiving(settings: TransferSettings, side: ReceiveSide, watch: Watch) -> Arc<Transfer> {
        Transfer::receiving_into(settings, &Arc::new(side), watch)
    }

    /// Creates an end like [`Transfer::receiving`], with a destination that the caller shares.
    pub(crate) fn receiving_into(
        settings: TransferSettings,
        side: &Arc<ReceiveSide>,
        watch: Watch,
    ) -> Arc<Transfer> {
        let machine = Receiver::new(side.machine_settings(&settings));
        let machine = Machine::receiving(machine);
        let side = Side::Receiving(Arc::clone(side) as _);
        Transfer::start(settings, machine, side, watch)
    }
}
