//! Arguments for object stores.

use clap::Args;
use longhaul_transfer::settings::S3Settings;

#[derive(Clone, Debug, Args)]
pub struct S3Arguments {
    /// URL of an S3-compatible store [default: AWS_ENDPOINT_URL_S3, else Amazon's]
    #[arg(long, value_name = "URL")]
    s3_endpoint: Option<String>,
    /// Region of the bucket [default: AWS_REGION, the profile, else us-east-1]
    #[arg(long, value_name = "NAME")]
    s3_region: Option<String>,
    /// Read a public bucket without credentials.
    #[arg(long)]
    s3_anonymous: bool,
    /// Agree to pay for the requests to a bucket whose owner requires this.
    #[arg(long)]
    s3_requester_pays: bool,
}

impl S3Arguments {
    /// Returns the settings for object stores.
    pub fn settings(self) -> S3Settings {
        S3Settings {
            endpoint: self.s3_endpoint,
            region: self.s3_region,
            anonymous: self.s3_anonymous,
            requester_pays: self.s3_requester_pays,
        }
    }
}
