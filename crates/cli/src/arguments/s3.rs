//! Arguments for object stores.

use clap::Args;

#[derive(Clone, Debug, Args)]
pub struct S3Arguments {
    /// URL of an S3-compatible store [default: AWS_ENDPOINT_URL_S3, else Amazon's]
    #[arg(long, value_name = "URL")]
    pub s3_endpoint: Option<String>,
    /// Region of the bucket [default: AWS_REGION, the profile, else us-east-1]
    #[arg(long, value_name = "NAME")]
    pub s3_region: Option<String>,
    /// Read a public bucket without credentials.
    #[arg(long)]
    pub s3_anonymous: bool,
    /// Agree to pay for the requests to a bucket whose owner requires this.
    #[arg(long)]
    pub s3_requester_pays: bool,
}
