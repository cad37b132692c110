package config

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CausalLog configures the log of the causes of writes.
type CausalLog struct {
	// Size is the largest size on disk, a quantity such as 64Mi, or off.
	Size string
	// Age is how long records are kept.
	Age metav1.Duration
}

const (
	causesOff = "off"
	// Bounds of CausalLog.Size, in bytes. More would need more memory than the log may use.
	leastCauses, mostCauses = 1 << 20, 256 << 20
)

func defaultCausalLog() CausalLog {
	return CausalLog{Size: "64Mi", Age: metav1.Duration{Duration: 7 * 24 * time.Hour}}
}

// Bytes is the largest size on disk; 0 turns the log off.
func (c *CausalLog) Bytes() int64 {
	if c.Size == causesOff || c.Size == "" {
		return 0
	}
	q, err := resource.ParseQuantity(c.Size)
	if err != nil {
		return 0 // validate reports it
	}
	return q.Value()
}

func (c *CausalLog) addFlags(f *pflag.FlagSet) {
	f.StringVar(&c.Size, "causal-log-size", c.Size, "`QUANTITY` of disk for the log of causes of writes, or off\nThe log is in DATA-DIR/causes. `knarr trace` reads it. Each server records its own writes.")
	f.DurationVar(&c.Age.Duration, "causal-log-age", c.Age.Duration, "time for which causes of writes are kept, as far as the size allows")
}

func (c *CausalLog) validate(bad func(field, value, allowed string)) {
	if c.Size != causesOff && c.Size != "" {
		q, err := resource.ParseQuantity(c.Size)
		if err != nil || q.Value() < leastCauses || q.Value() > mostCauses {
			bad("causal-log-size", c.Size, "a quantity from 1Mi to 256Mi, or off")
		}
	}
	if c.Age.Duration < time.Minute {
		bad("causal-log-age", fmt.Sprint(c.Age.Duration), "a duration of at least 1m, such as 168h")
	}
}
