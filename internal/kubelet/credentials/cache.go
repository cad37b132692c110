package credentials

import (
	"strings"
	"sync"
	"time"

	api "k8s.io/kubelet/pkg/apis/credentialprovider/v1"
)

// maxKept bounds the answers that are kept of a plugin. The one that expires first goes.
const maxKept = 1000

// cache keeps the answers of one plugin in memory. Each answer belongs to a caller: the service
// account or the token that it was made for, or "".
type cache struct {
	mu   sync.Mutex
	kept map[cacheKey]kept
}

type cacheKey struct {
	kind       api.PluginCacheKeyType
	of, caller string
}

type kept struct {
	auth   map[string]api.AuthConfig
	expire time.Time
}

func keyOf(kind api.PluginCacheKeyType, image, caller string) cacheKey {
	switch kind {
	case api.ImagePluginCacheKeyType:
		return cacheKey{kind, image, caller}
	case api.RegistryPluginCacheKeyType:
		host, _, _ := strings.Cut(image, "/")
		return cacheKey{kind, host, caller}
	}
	return cacheKey{kind, "", caller}
}

func (c *cache) find(image, caller string, now time.Time) (map[string]api.AuthConfig, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, kind := range []api.PluginCacheKeyType{api.ImagePluginCacheKeyType, api.RegistryPluginCacheKeyType, api.GlobalPluginCacheKeyType} {
		if k, ok := c.kept[keyOf(kind, image, caller)]; ok && now.Before(k.expire) {
			return k.auth, true
		}
	}
	return nil, false
}

func (c *cache) keep(key cacheKey, auth map[string]api.AuthConfig, now time.Time, d time.Duration) {
	if d <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept == nil {
		c.kept = map[cacheKey]kept{}
	}
	if len(c.kept) >= maxKept {
		var first cacheKey
		for k, v := range c.kept {
			if !now.Before(v.expire) {
				delete(c.kept, k)
			} else if f, ok := c.kept[first]; !ok || v.expire.Before(f.expire) {
				first = k
			}
		}
		if len(c.kept) >= maxKept {
			delete(c.kept, first)
		}
	}
	c.kept[key] = kept{auth, now.Add(d)}
}
