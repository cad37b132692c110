package network

import (
	"net/netip"
	"strings"
	"testing"
)

func TestTheErrorForAForeignNodeAddressNamesTheFlag(t *testing.T) {
	if _, err := linkOf(netip.MustParseAddr("192.0.2.254")); err == nil || !strings.Contains(err.Error(), "set --advertise-address to an address of this machine") {
		t.Errorf("error %v", err)
	}
}
