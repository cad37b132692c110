package config

import "k8s.io/apimachinery/pkg/api/resource"

// The limits of --store-quota in bytes. Above the largest, a start and a restore take minutes.
const (
	leastStoreQuota = 32 << 20
	mostStoreQuota  = 64 << 30
)

// StoreQuotaBytes is --store-quota in bytes.
func (c *Config) StoreQuotaBytes() int64 {
	q, _ := resource.ParseQuantity(c.StoreQuota) // validated
	return q.Value()
}

func (c *Config) validateStoreQuota(bad func(field, value, allowed string)) {
	q, err := resource.ParseQuantity(c.StoreQuota)
	if err != nil || q.Value() < leastStoreQuota || q.Value() > mostStoreQuota {
		bad("store-quota", c.StoreQuota, "a quantity of bytes between 32Mi and 64Gi, such as 8Gi")
	}
}
