-- A mod of the client, after a line that has the places: the player looks at them, digs one block, and says
-- so. The client plays at random, and of that only the first block that is dug is let through. What the
-- player sees is told line by line.
local digging, asked = true, false

local function tell(what)
	core.log("error", "PLAYER " .. core.write_json(what))
end

core.register_on_punchnode(function()
	return not digging or #places > 0 -- true leaves the block alone
end)
core.register_on_dignode(function(pos, node)
	digging = false
	tell({ dug = { pos.x, pos.y, pos.z }, block = node.name })
end)

-- What the player says comes back once the server has got all that was done before.
local last = "that is all"
core.register_on_receiving_chat_message(function(message)
	message = core.strip_colors(message)
	if message:find(last, 1, true) then
		tell({ done = true })
		core.after(0, core.disconnect)
	else
		tell({ heard = message })
	end
end)

core.register_globalstep(function()
	if asked or not core.localplayer then
		return
	end
	while #places > 0 do
		local place = places[1]
		local node = core.get_node_or_nil({ x = place[1], y = place[2], z = place[3] })
		if not node or node.name == "ignore" then
			return -- it isn't sent yet
		end
		tell({ place = place, block = node.name })
		table.remove(places, 1)
	end
	if not digging then
		asked = true
		core.send_chat_message(last)
	end
end)
