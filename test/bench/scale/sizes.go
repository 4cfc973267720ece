package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"k8s.io/client-go/rest"

	"dormouse.dev/dormouse/test/bench/scale/cluster"
)

// sizes are of one kind's objects as the API server stores and sends custom resources: as JSON,
// in bytes.
type sizes struct {
	Objects int `json:"objects"`
	Median  int `json:"median_bytes"`
	Max     int `json:"max_bytes"`
	// ManagedFields is how much of the median object's are for who wrote which field.
	ManagedFields int `json:"median_managed_fields_bytes"`
}

// page is how many objects are read at once.
const page = 500

// measureSizes reads all objects of one of Dormouse's kinds.
func measureSizes(ctx context.Context, c *cluster.Cluster, resource string) (sizes, error) {
	web, err := rest.HTTPClientFor(c.Config)
	if err != nil {
		return sizes{}, fmt.Errorf("make a client: %w", err)
	}
	var whole, managed []int
	query := url.Values{"limit": {strconv.Itoa(page)}}
	for {
		var list struct {
			Metadata struct {
				Continue string `json:"continue"`
			} `json:"metadata"`
			Items []json.RawMessage `json:"items"`
		}
		if err := getJSON(ctx, web, cluster.APIURL+"/apis/dormouse.dev/v1alpha1/"+resource+"?"+query.Encode(), &list); err != nil {
			return sizes{}, err
		}
		for _, item := range list.Items {
			var object struct {
				Metadata struct {
					ManagedFields json.RawMessage `json:"managedFields"`
				} `json:"metadata"`
			}
			if err := json.Unmarshal(item, &object); err != nil {
				return sizes{}, fmt.Errorf("read %s: %w", resource, err)
			}
			whole, managed = append(whole, len(item)), append(managed, len(object.Metadata.ManagedFields))
		}
		if list.Metadata.Continue == "" {
			break
		}
		query.Set("continue", list.Metadata.Continue)
	}
	if len(whole) == 0 {
		return sizes{}, nil
	}
	slices.Sort(whole)
	slices.Sort(managed)
	return sizes{Objects: len(whole), Median: whole[len(whole)/2], Max: whole[len(whole)-1], ManagedFields: managed[len(managed)/2]}, nil
}

func getJSON(ctx context.Context, web *http.Client, address string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return fmt.Errorf("build a request: %w", err)
	}
	res, err := web.Do(req)
	if err != nil {
		return fmt.Errorf("read %s: %w", address, err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("read %s: it answered %s", address, res.Status)
	}
	if err := json.NewDecoder(res.Body).Decode(into); err != nil {
		return fmt.Errorf("read %s: %w", address, err)
	}
	return nil
}
