package config

import "github.com/spf13/pflag"

func (c *Config) addArchitecture(f *pflag.FlagSet) {
	f.BoolVar(&c.Architecture, "architecture", c.Architecture, "serve the kinds Component and System, and compare them with the cluster\nWithout it, the kinds' definitions are not made, and existing ones are ignored.")
}
