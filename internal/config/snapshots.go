package config

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Snapshots configures scheduled snapshots, and where `knarr snapshot` finds them.
type Snapshots struct {
	// Schedule is a cron expression, a duration such as 6h, or off. Default: every 12 hours.
	Schedule string
	// Keep is the number of scheduled snapshots that are kept; 0 keeps all. Default 5.
	Keep int
	// MaxAge is the age after which a scheduled snapshot is removed; 0 means never.
	MaxAge metav1.Duration
	// Dir is the folder, or none. Default DIR/snapshots.
	Dir string
	// WithKeys puts the cluster's keys into scheduled and saved snapshots.
	WithKeys bool
	// KeyFile is a file of age's recipients or identities. With it, snapshots are encrypted.
	KeyFile string
	// BeforeUpgrade keeps a snapshot before the first start of another version. Default true.
	BeforeUpgrade bool
	S3            SnapshotS3
}

// SnapshotS3 configures a bucket for snapshots. Without a bucket there is none.
type SnapshotS3 struct {
	Endpoint, Bucket, Prefix, Region, Credentials, CA string
	PathStyle                                         bool
}

// Values of Snapshots.Schedule and Snapshots.Dir that turn them off.
const (
	scheduleOff = "off"
	folderNone  = "none"
)

// leastInterval is the shortest time between snapshots.
const leastInterval = time.Minute

func defaultSnapshots() Snapshots {
	return Snapshots{Schedule: "0 */12 * * *", Keep: 5, BeforeUpgrade: true}
}

// When returns the schedule, or nil for none.
func (c *Snapshots) When() (cron.Schedule, error) {
	if c.Schedule == scheduleOff || c.Schedule == "" {
		return nil, nil
	}
	if every, err := time.ParseDuration(c.Schedule); err == nil {
		if every < leastInterval {
			return nil, fmt.Errorf("%s is shorter than %s", every, leastInterval)
		}
		return cron.Every(every), nil
	}
	return cron.ParseStandard(c.Schedule)
}

// SnapshotDir is the folder of snapshots, or "" for none.
func (c *Config) SnapshotDir() string {
	switch c.Snapshots.Dir {
	case "":
		return c.Path("snapshots")
	case folderNone:
		return ""
	}
	return filepath.Clean(c.Snapshots.Dir)
}

func (c *Snapshots) addFlags(f *pflag.FlagSet) {
	f.StringVar(&c.Schedule, "snapshot-schedule", c.Schedule, "`WHEN` to take snapshots: a cron expression, an interval such as 6h, or off\nCron expressions are in the machine's time zone. A snapshot that was missed while knarr did not run is taken five minutes after its start. An outside etcd (--store) gets none.")
	f.IntVar(&c.Keep, "snapshot-keep", c.Keep, "number of scheduled snapshots to keep; 0 keeps all\nThe newest good one always stays. Snapshots with other names are never removed.")
	f.DurationVar(&c.MaxAge.Duration, "snapshot-max-age", c.MaxAge.Duration, "age after which a scheduled snapshot is removed; 0 means never")
	f.StringVar(&c.Dir, "snapshot-dir", c.Dir, "`DIR` for snapshots, or none (default: DATA-DIR/snapshots)\nA folder that several servers share holds the snapshots of each.")
	f.BoolVar(&c.WithKeys, "snapshot-with-keys", c.WithKeys, "put the cluster's keys into snapshots\nThey are the CAs, the service account keys and the encryption configuration. Such a snapshot makes the same cluster on a new machine. Whoever reads it can do anything in the cluster: --snapshot-key-file encrypts it.")
	f.StringVar(&c.KeyFile, "snapshot-key-file", c.KeyFile, "`FILE` of age's recipients or identities, with which snapshots are encrypted\n`age-keygen` makes an identity. With its recipient (age1...) alone, the server cannot read its own snapshots; a restore needs the identity.")
	f.BoolVar(&c.BeforeUpgrade, "snapshot-before-upgrade", c.BeforeUpgrade, "keep a snapshot before the first start of another version")
	s := &c.S3
	f.StringVar(&s.Bucket, "snapshot-s3-bucket", s.Bucket, "`BUCKET` of S3 that gets the scheduled snapshots too\nOn several servers, one of them uploads at each time of the schedule.")
	f.StringVar(&s.Prefix, "snapshot-s3-prefix", s.Prefix, "`PATH` in the bucket; each cluster needs its own")
	f.StringVar(&s.Endpoint, "snapshot-s3-endpoint", s.Endpoint, "`URL` or host of the S3 service (default: AWS)\nhttp:// means no TLS.")
	f.StringVar(&s.Region, "snapshot-s3-region", s.Region, "`REGION` of the bucket (default: asked from the service)")
	f.StringVar(&s.Credentials, "snapshot-s3-credentials-file", s.Credentials, "credentials `FILE` in AWS's format (default: the environment)\nThe section [default] has aws_access_key_id and aws_secret_access_key. Without a file, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY of the environment count.")
	f.StringVar(&s.CA, "snapshot-s3-ca", s.CA, "CA certificate `FILE` of the S3 service, PEM (default: the machine's)")
	f.BoolVar(&s.PathStyle, "snapshot-s3-path-style", s.PathStyle, "name the bucket in the URL's path, not in the host's name")
}

func (c *Snapshots) validate(bad func(field, value, allowed string)) {
	if _, err := c.When(); err != nil {
		bad("snapshot-schedule", c.Schedule, "a cron expression such as \"0 */6 * * *\", a duration of a minute or more such as 6h, or off")
	}
	if c.Keep < 0 {
		bad("snapshot-keep", fmt.Sprint(c.Keep), "0 or more")
	}
	if c.MaxAge.Duration < 0 {
		bad("snapshot-max-age", c.MaxAge.Duration.String(), "0 or more")
	}
	if c.Dir != "" && c.Dir != folderNone && !filepath.IsAbs(c.Dir) {
		bad("snapshot-dir", c.Dir, "an absolute path, or none")
	}
	if c.Dir == folderNone && c.S3.Bucket == "" && c.Schedule != scheduleOff {
		bad("snapshot-dir", c.Dir, "a folder, if there is no snapshot-s3-bucket")
	}
	if strings.Contains(c.S3.Bucket, "/") {
		bad("snapshot-s3-bucket", c.S3.Bucket, "a name without slashes; snapshot-s3-prefix is the path in it")
	}
	if strings.Contains(c.S3.Endpoint, "://") {
		u, err := url.Parse(c.S3.Endpoint)
		if err != nil || u.Host == "" || u.User != nil || u.Scheme != "http" && u.Scheme != "https" {
			bad("snapshot-s3-endpoint", c.S3.Endpoint, "a host, host:port, or a URL such as https://s3.example.com")
		}
	}
}
