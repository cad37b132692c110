package config

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// InsightLog configures a log that questions about the past read.
type InsightLog struct {
	// Size is the largest size on disk, a quantity such as 64Mi, or off.
	Size string
	// Age is how long entries are kept.
	Age metav1.Duration
}

const logOff = "off"

// insightFlags are the flags of a log: NAME-size and NAME-age.
type insightFlags struct {
	name, sizeUsage, ageUsage string
	// least and most bound the size.
	least, most string
}

var (
	// A larger causal log would need more memory than it may use.
	causalLog = insightFlags{
		name: "causal-log", least: "1Mi", most: "256Mi",
		sizeUsage: "`QUANTITY` of disk for the log of causes of writes, or off\nThe log is in DATA-DIR/causes. `knarr trace` reads it. Each server records its own writes.",
		ageUsage:  "time for which causes of writes are kept, as far as the size allows",
	}
	history = insightFlags{
		name: "history", least: "4Mi", most: "64Gi",
		sizeUsage: "`QUANTITY` of disk for the history of objects, or off\nIt is in DATA-DIR/history. `knarr timeline`, `knarr diff` and `knarr kubectl get --at 10m` read it.",
		ageUsage:  "time for which states of objects are kept, as far as the size allows",
	}
)

func defaultInsightLog(size string) InsightLog {
	return InsightLog{Size: size, Age: metav1.Duration{Duration: 7 * 24 * time.Hour}}
}

// Bytes is the largest size on disk; 0 turns the log off.
func (l *InsightLog) Bytes() int64 {
	if l.Size == logOff || l.Size == "" {
		return 0
	}
	q, err := resource.ParseQuantity(l.Size)
	if err != nil {
		return 0 // validate reports it
	}
	return q.Value()
}

func (i *insightFlags) add(f *pflag.FlagSet, l *InsightLog) {
	f.StringVar(&l.Size, i.name+"-size", l.Size, i.sizeUsage)
	f.DurationVar(&l.Age.Duration, i.name+"-age", l.Age.Duration, i.ageUsage)
}

func (i *insightFlags) validate(l *InsightLog, bad func(field, value, allowed string)) {
	if l.Size != logOff && l.Size != "" {
		q, err := resource.ParseQuantity(l.Size)
		if err != nil || q.Cmp(resource.MustParse(i.least)) < 0 || q.Cmp(resource.MustParse(i.most)) > 0 {
			bad(i.name+"-size", l.Size, fmt.Sprintf("a quantity from %s to %s, or off", i.least, i.most))
		}
	}
	if l.Age.Duration < time.Minute {
		bad(i.name+"-age", fmt.Sprint(l.Age.Duration), "a duration of at least 1m, such as 168h")
	}
}
