package config

import (
	"strings"
	"testing"
)

func TestStoreQuota(t *testing.T) {
	for text, want := range map[string]int64{"8Gi": 8 << 30, "32Mi": 32 << 20, "2000000000": 2e9, "31Mi": 0, "65Gi": 0, "much": 0, "": 0, "-1Gi": 0} {
		c := Default()
		c.NodeName, c.AdvertiseAddress, c.StaticPods, c.StoreQuota = "n", "192.0.2.1", "/m", text
		err := c.Validate()
		if want == 0 {
			if err == nil || !strings.Contains(err.Error(), "store-quota") || !strings.Contains(err.Error(), "between 32Mi and 64Gi") {
				t.Errorf("%q: %v", text, err)
			}
			continue
		}
		if err != nil || c.StoreQuotaBytes() != want {
			t.Errorf("%q: %d, %v", text, c.StoreQuotaBytes(), err)
		}
	}
}
