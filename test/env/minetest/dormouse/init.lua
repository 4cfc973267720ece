-- A mod of the server: it tells the sidecar how many play. And it makes it easy for the test's players,
-- who move at random: they begin at one place and look at the ground.
local http = core.request_http_api()
local url = "http://localhost:" .. (os.getenv("AGONES_SDK_HTTP_PORT") or "9358") .. "/players"
local playing = {}

local function tell()
	local n = 0
	for _ in pairs(playing) do
		n = n + 1
	end
	local call = { url = url, method = "PUT", data = core.write_json({ current = n }) }
	http.fetch(call, function(result)
		if not result.succeeded then
			core.after(1, tell) -- the sidecar starts after the game
		end
	end)
end

core.after(0, tell)
core.register_on_joinplayer(function(player)
	playing[player:get_player_name()] = true
	player:set_pos({ x = 0, y = 9, z = 0 })
	tell()
end)
core.register_on_leaveplayer(function(player)
	playing[player:get_player_name()] = nil
	tell()
end)

-- Nobody gets what they dig, and so nobody puts a block where one was dug.
core.register_on_mods_loaded(function()
	core.handle_node_drops = function() end
end)
core.register_globalstep(function()
	for _, player in ipairs(core.get_connected_players()) do
		player:set_look_vertical(math.pi / 2)
	end
end)
