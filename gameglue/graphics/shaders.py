"""GLSL 3.30 source of the shaders that gameglue draws with."""

from __future__ import annotations

from typing import Final

# A quad an instance, its shape computed in the fragment shader as a distance to the outline: edges are
# smooth at every size without multisampling, and rectangles, circles, lines and sprites are one batch.
QUAD_VERTEX: Final = """
#version 330 core
in vec2 in_center;
in vec2 in_half;
in vec2 in_axis;
in vec4 in_uv;
in vec4 in_shape;
in vec4 in_color;
in vec4 in_color2;

uniform vec3 view_x;
uniform vec3 view_y;
uniform float pixel;

out vec2 local;
out vec2 uv;
flat out vec2 half_size;
flat out vec4 shape;
flat out vec4 near_color;
flat out vec4 far_color;

void main() {
    vec2 corner = vec2(gl_VertexID & 1, gl_VertexID >> 1) * 2.0 - 1.0;
    float margin = abs(in_shape.z - 2.0) < 0.5 ? 0.0 : pixel + in_shape.w;
    local = corner * (in_half + margin);
    half_size = in_half;
    shape = in_shape;
    vec2 at = local / max(in_half, vec2(1e-6)) * 0.5 + 0.5;
    uv = mix(in_uv.xy, in_uv.zw, at);
    near_color = in_color;
    far_color = in_color2;
    vec2 position = in_center + vec2(local.x * in_axis.x - local.y * in_axis.y,
                                     local.x * in_axis.y + local.y * in_axis.x);
    gl_Position = vec4(dot(view_x, vec3(position, 1.0)), dot(view_y, vec3(position, 1.0)), 0.0, 1.0);
}
"""

# shape: corner radius, border width (0 fills), kind (0 plain, 1 image, 2 glyph), softness of the edge.
# A kind of 4 and above adds its light to what is there. Colours leave multiplied by their alpha, so that
# covering and adding are one blend function, and both may stand in one batch.
_QUAD_FRAGMENT: Final = """
#version 330 core
%s
in vec2 local;
in vec2 uv;
flat in vec2 half_size;
flat in vec4 shape;
flat in vec4 near_color;
flat in vec4 far_color;

uniform float pixel;
uniform sampler2D glyphs;
uniform sampler2D picture;

out vec4 color;

float coverage() {
    vec2 q = abs(local) - half_size + shape.x;
    float outside = length(max(q, 0.0)) + min(max(q.x, q.y), 0.0) - shape.x;
    if (shape.y > 0.0) outside = abs(outside + shape.y * 0.5) - shape.y * 0.5;
    if (shape.w > 0.0) {
        float t = clamp(0.5 - outside / (2.0 * shape.w), 0.0, 1.0);
        return t * t * (3.0 - 2.0 * t);
    }
    return clamp(0.5 - outside / pixel, 0.0, 1.0);
}

void main() {
    color = mix(near_color, far_color, clamp(local.y / max(half_size.y, 1e-6) * 0.5 + 0.5, 0.0, 1.0));
    bool adds = shape.z > 3.5;
#if defined(ONLY_PLAIN)
    color.a *= coverage();
#elif defined(ONLY_PICTURES)
    color *= texture(picture, uv);
    color.a *= coverage();
#else
    float kind = adds ? shape.z - 4.0 : shape.z;
    if (kind > 1.5) {
        color.a *= texture(glyphs, uv / vec2(textureSize(glyphs, 0))).r;
    } else {
        if (kind > 0.5) color *= texture(picture, uv);
        color.a *= coverage();
    }
#endif
    color.rgb *= color.a;
    if (adds) color.a = 0.0;
}
"""
QUAD_FRAGMENT: Final = _QUAD_FRAGMENT % ""
# For quads of one kind. Software renderers compute all branches for every pixel, textures included.
PLAIN_FRAGMENT: Final = _QUAD_FRAGMENT % "#define ONLY_PLAIN"
PICTURE_FRAGMENT: Final = _QUAD_FRAGMENT % "#define ONLY_PICTURES"

# Meshes: what differs from object to object comes with the instance, what a camera sees by is uniform.
MESH_VERTEX: Final = """
#version 330 core
in vec3 in_position;
in vec3 in_normal;
in vec2 in_uv;
in vec4 in_x;
in vec4 in_y;
in vec4 in_z;
in vec4 in_color;
in vec4 in_glow;

uniform mat4 world_to_clip;
uniform bool flipped;

out vec3 world;
out vec3 normal;
out vec2 uv;
flat out vec4 tint;
flat out vec4 glow;

void main() {
    vec4 place = vec4(in_position, 1.0);
    world = vec3(dot(in_x, place), dot(in_y, place), dot(in_z, place));
    // Cofactors: the inverse transpose times the determinant, right for uneven scales, defined for flat ones.
    vec3 x = in_x.xyz, y = in_y.xyz, z = in_z.xyz;
    float side = dot(x, cross(y, z)) < 0.0 ? -1.0 : 1.0;
    vec3 n = in_normal * side;
    normal = vec3(dot(cross(y, z), n), dot(cross(z, x), n), dot(cross(x, y), n));
    uv = flipped ? vec2(in_uv.x, 1.0 - in_uv.y) : in_uv;
    tint = in_color;
    glow = in_glow;
    gl_Position = world_to_clip * vec4(world, 1.0);
}
"""

# Lambert's law for diffuse light, Blinn's half vector for highlights.
_MESH_FRAGMENT: Final = """
#version 330 core
%s
in vec3 world;
in vec3 normal;
in vec2 uv;
flat in vec4 tint;
flat in vec4 glow;

uniform sampler2D picture;
uniform bool textured;
uniform bool blended;
uniform vec4 eye;
uniform vec3 sky;
uniform vec3 ground;
uniform int light_count;
uniform vec3 light_towards[4];
uniform vec3 light_color[4];

out vec4 color;

#ifdef SHADOWS
uniform int shadow_light;
uniform mat4 world_to_shadow;
uniform sampler2DShadow shadow_map;
uniform float shadow_step;

// The share of light that arrives, from four places around. Looked up a little above the surface, so that
// it does not shade itself.
float arriving(vec3 n) {
    vec3 at = (world_to_shadow * vec4(world + n * shadow_step * 2.0, 1.0)).xyz * 0.5 + 0.5;
    if (any(lessThan(at, vec3(0.0))) || any(greaterThan(at, vec3(1.0)))) return 1.0;
    vec2 texel = 0.6 / vec2(textureSize(shadow_map, 0));
    float sum = 0.0;
    for (int i = 0; i < 4; i++) {
        vec2 aside = vec2((i & 1) * 2 - 1, (i >> 1) * 2 - 1) * texel;
        sum += texture(shadow_map, vec3(at.xy + aside, at.z));
    }
    return sum * 0.25;
}
#endif

void main() {
    vec4 base = textured ? tint * texture(picture, uv) : tint;
    if (base.a < (blended ? 0.002 : 0.5)) discard;
    vec3 n = normalize(gl_FrontFacing ? normal : -normal);
    vec3 light = mix(ground, sky, n.y * 0.5 + 0.5);
    vec3 highlight = vec3(0.0);
    vec3 to_eye = normalize(eye.xyz - world * eye.w);
    for (int i = 0; i < light_count; i++) {
        float facing = max(dot(n, light_towards[i]), 0.0);
#ifdef SHADOWS
        if (i == shadow_light && facing > 0.0) facing *= arriving(n);
#endif
        light += facing * light_color[i];
#ifdef HIGHLIGHTS
        if (glow.a > 0.0 && facing > 0.0) {
            vec3 half_way = normalize(light_towards[i] + to_eye);
            highlight += pow(max(dot(n, half_way), 0.0), 48.0) * min(facing * 4.0, 1.0) * light_color[i];
        }
#endif
    }
    // What hides all behind it is whole; of the rest, highlights keep their strength, as on glass.
    float alpha = blended ? base.a : 1.0;
    color = vec4((base.rgb * light + glow.rgb) * alpha + highlight * glow.a, alpha);
}
"""


def mesh_fragment(*, shadows: bool, highlights: bool) -> str:
    """The mesh shader, compiled with only the features in use, as software renderers are slow."""
    wanted = ("SHADOWS", shadows), ("HIGHLIGHTS", highlights)
    return _MESH_FRAGMENT % "\n".join(f"#define {name}" for name, is_wanted in wanted if is_wanted)


SHADOW_VERTEX: Final = """
#version 330 core
in vec3 in_position;
in vec4 in_x;
in vec4 in_y;
in vec4 in_z;

uniform mat4 world_to_shadow;

void main() {
    vec4 place = vec4(in_position, 1.0);
    gl_Position = world_to_shadow * vec4(dot(in_x, place), dot(in_y, place), dot(in_z, place), 1.0);
}
"""

SHADOW_FRAGMENT: Final = """
#version 330 core
void main() {}
"""

# Particles in space: squares that face the camera.
PARTICLE_VERTEX: Final = """
#version 330 core
in vec3 in_place;
in vec2 in_form;
in vec4 in_color;

uniform mat4 world_to_clip;
uniform vec3 right;
uniform vec3 up;
uniform float proportion;
uniform bool flipped;

out vec2 at;
out vec2 uv;
flat out vec4 tint;

void main() {
    at = vec2(gl_VertexID & 1, gl_VertexID >> 1) * 2.0 - 1.0;
    uv = at * 0.5 + 0.5;
    if (flipped) uv.y = 1.0 - uv.y;
    tint = in_color;
    vec2 corner = vec2(at.x, at.y * proportion) * in_form.x * 0.5;
    float c = cos(in_form.y), s = sin(in_form.y);
    vec3 offset = right * (corner.x * c - corner.y * s) + up * (corner.x * s + corner.y * c);
    gl_Position = world_to_clip * vec4(in_place + offset, 1.0);
}
"""

PARTICLE_FRAGMENT: Final = """
#version 330 core
in vec2 at;
in vec2 uv;
flat in vec4 tint;

uniform sampler2D picture;
uniform bool textured;
uniform bool adds;
uniform float softness;

out vec4 color;

void main() {
    color = textured ? tint * texture(picture, uv) : tint;
    if (!textured) {
        float inside = 1.0 - length(at);
        float pixel = fwidth(inside);
        float sharp = clamp(inside / pixel + 0.5, 0.0, 1.0);
        color.a *= softness > pixel ? smoothstep(0.0, softness, inside) : sharp;
    }
    if (color.a < 0.002) discard;
    color.rgb *= color.a;
    if (adds) color.a = 0.0;
}
"""

FULLSCREEN_VERTEX: Final = """
#version 330 core
out vec2 uv;
void main() {
    uv = vec2((gl_VertexID << 1) & 2, gl_VertexID & 2);
    gl_Position = vec4(uv * 2.0 - 1.0, 0.0, 1.0);
}
"""

COPY_FRAGMENT: Final = """
#version 330 core
in vec2 uv;
uniform sampler2D source;
out vec4 color;
void main() { color = vec4(texture(source, uv).rgb, 1.0); }
"""


def numbered(source: str) -> str:
    """The source with line numbers, as compilers refer to them."""
    return "\n".join(f"{i:4}  {line}" for i, line in enumerate(source.strip().splitlines(), start=1))
