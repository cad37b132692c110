package config

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/spf13/pflag"
)

// Upstream's ports of components that run alone.
const (
	controllersPort = 10257
	schedulerPort   = 10259
)

// Observe configures the HTTPS address for health and metrics of a component that runs alone, with
// upstream's names.
type Observe struct {
	// BindAddress and SecurePort are the listen address. Default 0.0.0.0, and 10257 for
	// controllers, 10259 for the scheduler. Port 0 disables it.
	BindAddress string
	SecurePort  int
	// Serving is the certificate. Default: a self-signed one.
	Serving
}

func (o *Observe) addFlags(f *pflag.FlagSet, port int) {
	topic(f, ServingTopic, func(f *pflag.FlagSet) {
		f.StringVar(&o.BindAddress, "bind-address", cmp.Or(o.BindAddress, "0.0.0.0"), "`IP` address of health pages and metrics (HTTPS)")
		f.IntVar(&o.SecurePort, "secure-port", cmp.Or(o.SecurePort, port), "port of health pages and metrics; 0 serves none")
		o.Serving.addFlags(f, "a self-signed one")
	})
}

func (o *Observe) validate(bad func(field, value, allowed string)) {
	if _, err := netip.ParseAddr(o.BindAddress); o.BindAddress != "" && err != nil {
		bad("bind-address", o.BindAddress, "an IP address")
	}
	if o.SecurePort < 0 || o.SecurePort > 65535 {
		bad("secure-port", fmt.Sprint(o.SecurePort), "a port, or 0 for none")
	}
	o.Serving.validate(bad)
}
